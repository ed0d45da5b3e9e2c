"""Table of the runs of a project: filtered, sorted and paged here; a client holds one page."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.protocol.records.run_table import RunPage
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.run_table import RunQuery, RunSort
from engine.runtime.closing import cancel
from engine.server.services.library import Library

QUICK_S = 0.05
"""Seconds; a list of runs that was read faster than this is read again for every request."""
REST = 10
"""Factor on the reading time of a slow list: it is read again only when it is older than that."""
PATIENCE_S = 1.0
"""Seconds to wait for a list of runs; if reading takes longer, the newest runs or the list read
before are shown meanwhile."""
SPARKLINE_POINTS = 60
STATES = {
    "active": ACTIVE_STATES,
    "finished": {"finished"},
    "stopped": {"stopped"},
    "failed": {"failed", "damaged"},
    "queued": {"queued"},
}
KEYS: dict[RunSort, Callable[[RunSummary], Any]] = {
    "started": lambda run: run.started_at,
    "name": lambda run: run.name.casefold(),
    "state": lambda run: run.state,
    "kind": lambda run: run.kind,
    "model": lambda run: run.model.casefold(),
    "steps": lambda run: run.step,
    "best": lambda run: run.best.mean if run.best else None,
    "duration": lambda run: run.trained_s,
    "cost": lambda run: run.usd,
}


@dataclass
class _Listing:
    """Runs of a project, the time at which they were read (monotonic clock), and how many seconds
    reading took."""

    runs: list[RunSummary]
    at: float
    seconds: float


class RunTable:
    """Queries over the runs of a project. A project with thousands of runs is listed from memory
    while its folders are read again behind; active runs are always current."""

    def __init__(self, library: Library, current: Callable[[str], RunSummary]) -> None:
        """`current(run_id)` is the summary of a run as it is now. Create it in the event loop."""
        self._library, self._current = library, current
        self._listings: dict[Path, _Listing] = {}
        self._reading: dict[Path, asyncio.Task[_Listing]] = {}
        self._texts: dict[str, tuple[RunSummary, str]] = {}

    async def close(self) -> None:
        await cancel(*self._reading.values())

    async def page(self, query: RunQuery, project: Path) -> RunPage:
        """Return one page of the project's runs. If reading them all takes long, it has only the
        recent ones and is marked as partial."""
        runs, partial = await self._runs(project)
        page = await asyncio.to_thread(page_of, runs, query, self._text_of)
        thinned = [_thin(run) for run in page.items]
        return page.model_copy(update={"items": thinned, "partial": partial})

    def changed(self, run_id: str) -> None:
        """Refresh the listed summary of a run, whose notes have changed; no effect if its project
        is not listed."""
        folder = self._library.find(run_id)
        listing = self._listings.get(folder.parents[1])
        if listing is None:
            return
        if run_id in [run.id for run in listing.runs]:
            now = self._current(run_id)
            listing.runs = [now if run.id == run_id else run for run in listing.runs]

    def removed(self, run_id: str, project: Path) -> None:
        """Remove a deleted run of the project in folder `project` from the list."""
        if listing := self._listings.get(project):
            listing.runs = [run for run in listing.runs if run.id != run_id]

    def reread(self, project: Path) -> None:
        """Begin to read the list of a project again, because a run was added; no effect if it was
        never read."""
        if project in self._listings:
            self._read(project)

    async def _runs(self, project: Path) -> tuple[list[RunSummary], bool]:
        """Return the runs of a project, and whether older ones are still being read."""
        listing = self._listings.get(project)
        if listing is None or listing.seconds < QUICK_S:
            reading = self._read(project)
            await asyncio.wait([reading], timeout=PATIENCE_S)
            if not reading.done() and listing is None:
                return await asyncio.to_thread(self._library.recent_runs, project), True
            listing = reading.result() if reading.done() else listing
            assert listing is not None
        elif time.monotonic() - listing.at > REST * listing.seconds:
            self._read(project)
        runs = [self._current(r.id) if r.state in ACTIVE_STATES else r for r in listing.runs]
        return runs, False

    def _text_of(self, run: RunSummary) -> str:
        """Return the text in which a search looks, made once for an unchanged summary."""
        known = self._texts.get(run.id)
        if known is None or known[0] is not run:
            known = self._texts[run.id] = run, searched_text(run)
        return known[1]

    def _read(self, project: Path) -> "asyncio.Task[_Listing]":
        """Begin to read the list of a project, unless that is going on."""
        if project not in self._reading:
            task = asyncio.create_task(self._listed(project), name=f"runs of {project.name}")
            self._reading[project] = task
            task.add_done_callback(lambda _: self._reading.pop(project, None))
        return self._reading[project]

    async def _listed(self, project: Path) -> _Listing:
        started_at = time.monotonic()
        runs = await asyncio.to_thread(self._library.runs, project)
        now = time.monotonic()
        listing = self._listings[project] = _Listing(runs, now, now - started_at)
        return listing


def searched_text(run: RunSummary) -> str:
    """Return the text that a search in the table of runs examines (name, id, settings, notes …),
    case-folded."""
    return "\n".join(_searched(run)).casefold()


def page_of(
    runs: list[RunSummary], query: RunQuery, text_of: Callable[[RunSummary], str] = searched_text
) -> RunPage:
    """Return the page of `runs` (newest first) that a query selects, with counts and tags of the
    whole list. `text_of` returns the text that a search examines."""
    listed = [run for run in runs if not run.notes.archived]
    candidates = [run for run in runs if run.notes.archived] if query.archived else listed
    words = query.search.casefold().split()
    matching = [
        run
        for run in candidates
        if _matches(run, query) and (not words or all(word in text_of(run) for word in words))
    ]
    found = _ordered(matching, query)
    page = found[query.offset : query.offset + query.limit]
    tags = Counter(tag for run in listed for tag in run.notes.tags)
    return RunPage(
        total=len(found),
        items=page,
        tags=dict(sorted(tags.items(), key=lambda item: (-item[1], item[0].casefold()))),
        archived=len(runs) - len(listed),
        runs=len(runs),
    )


def _matches(run: RunSummary, query: RunQuery) -> bool:
    if query.state != "all" and run.state not in STATES[query.state]:
        return False
    if query.kind is not None and run.kind != query.kind:
        return False
    return query.tag is None or query.tag in run.notes.tags


def _searched(run: RunSummary) -> Iterable[str]:
    parent = run.parent.name if run.parent else ""
    yield from (run.name, run.id, run.model, run.kind, run.state, run.source, run.host, parent)
    yield from (*run.notes.tags, run.notes.note)
    yield from (f"{key}={value}" for key, value in run.settings.items())


def _ordered(runs: list[RunSummary], query: RunQuery) -> list[RunSummary]:
    """Sort runs, which are newest first; of equal ones the newest stays first."""
    key = KEYS[query.sort]
    known = [(value, run) for run in runs if (value := key(run)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=query.descending)
    found = [run for _, run in known]
    if len(known) < len(runs):
        found += [run for run in runs if key(run) is None]
    pinned = [run for run in found if run.notes.pinned]
    return pinned + [run for run in found if not run.notes.pinned] if pinned else found


def _thin(run: RunSummary) -> RunSummary:
    """Return the summary with curves thinned out for a sparkline; their last points are kept."""
    if max(len(run.rewards), len(run.losses)) <= SPARKLINE_POINTS:
        return run
    return run.model_copy(update={"rewards": _few(run.rewards), "losses": _few(run.losses)})


def _few(values: list[Any]) -> list[Any]:
    if len(values) <= SPARKLINE_POINTS:
        return values
    last = len(values) - 1
    return [
        values[round(place * last / (SPARKLINE_POINTS - 1))] for place in range(SPARKLINE_POINTS)
    ]
