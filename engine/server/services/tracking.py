"""Experiment tracking: sends the metrics and traces of runs to trackers."""

import asyncio
import sys
from functools import partial
from pathlib import Path

from engine.integrations.trackers.cursor import Cursor, hold_tracker, read_cursor
from engine.integrations.trackers.feed import Feed, Source, count_unsent, is_unfinished, view_of
from engine.protocol.config.tracking import (
    TRACKERS,
    TrackConfig,
    TrackerList,
    TrackerName,
    TrackerState,
    TrackerView,
    switched_on,
)
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.records.runs import TRAINING_KINDS, RunSpec
from engine.remote.mirror.record import read_record
from engine.runtime.closing import cancel
from engine.server.services.home_requests import HomeLease
from engine.server.services.library import Library
from engine.server.services.runs.work import ActiveRuns
from engine.storage.project import load_config
from engine.storage.run_folder.run import read_spec
from engine.trust.projects import require_run_trust

LEAVE_S = 10.0
"""Seconds for the remaining items when the engine ends."""
TRACKED = TRAINING_KINDS | {"baseline"}
"""Kinds of runs that have steps or validations."""


class TrackingService:
    """Tracker feeds: those of an active run end with it, others begin on request."""

    def __init__(self, library: Library, active: ActiveRuns, lease: HomeLease) -> None:
        self._library, self._active, self._lease = library, active, lease
        self.keys: dict[str, str] = {}
        """API keys by tracker, lent by studio or command line for the life of this engine."""
        self.pids: set[int] = set()
        self._feeds: dict[tuple[str, TrackerName], tuple[Feed, asyncio.Task[None]]] = {}
        self._leaving = False
        self._looks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._feeds)

    def lend(self, keys: dict[str, str]) -> None:
        """Lend API keys by tracker; uploads that wait for a key try again."""
        self.keys.update(keys)
        for feed, _ in self._feeds.values():
            feed.hurry()

    def begin(self, folder: Path, spec: RunSpec) -> None:
        """Start sending a training run to the trackers that its settings enable; no effect if a
        home machine uses this engine, since that machine sends it."""
        if spec.kind in TRACKED and not self._lease.was_taken:
            self._tell(folder, spec, spec.config.track, switched_on(spec.config.track))

    def on_mirrored(self, run_id: str) -> None:
        """Send new events of a mirror to its trackers; the remote engine does not send any."""
        feeds = [feed for (run, _), (feed, _) in self._feeds.items() if run == run_id]
        if not feeds and run_id not in self._looks and not self._leaving:
            look = asyncio.create_task(self._begin_mirrored(run_id), name=f"trackers of {run_id}")
            self._looks[run_id] = look
            look.add_done_callback(lambda _: self._looks.pop(run_id))

    async def _begin_mirrored(self, run_id: str) -> None:
        try:
            folder = await asyncio.to_thread(self._library.folder, run_id)
        except Refused:  # its first page, before its project is known: the next one finds it
            return
        try:
            await asyncio.to_thread(require_run_trust, folder)
        except Refused:  # it is told when the person trusts its project and asks
            return
        spec = await asyncio.to_thread(read_spec, folder)
        track = spec.config.track
        names = switched_on(track) if spec.kind in TRACKED else []
        lacks = [name for name in names if await asyncio.to_thread(_lacks, folder, name)]
        self._tell(folder, spec, track, lacks)

    def ended(self, run_id: str) -> None:
        """Send the remaining items of an ended run now."""
        for (run, _), (feed, _) in self._feeds.items():
            if run == run_id:
                feed.hurry()

    def send(self, folder: Path, wanted: list[TrackerName]) -> None:
        """Send a run to the trackers `wanted` (empty: those that the project's current settings
        enable), from where each stopped. Raises Refused, and ConfigError for invalid settings."""
        require_run_trust(folder)
        spec = read_spec(folder)
        if spec.kind not in TRACKED:
            raise Refused.of(
                "track.no_steps",
                f"Only training runs are tracked; this one is of kind {spec.kind}.",
            )
        track = self._settings(folder, spec)
        names = wanted or switched_on(track)
        if not names:
            raise Refused.of(
                "track.none",
                "No tracker is enabled.",
                "Enable a tracker on the Setup page under Track, or use --to mlflow.",
            )
        for name in names:
            if (spec.id, name) not in self._feeds:
                with hold_tracker(folder, name):
                    pass  # nobody else does it
        self._tell(folder, spec, track, names)

    async def views(self, run_id: str, folder: Path) -> TrackerList:
        """State of the trackers that are enabled for this run or received it before."""
        spec = await asyncio.to_thread(read_spec, folder)
        found = [
            view
            for name in TRACKERS
            if (view := await asyncio.to_thread(self._view, run_id, folder, spec, name))
        ]
        sending = any(run == run_id for run, _ in self._feeds)
        return TrackerList(trackers=found, sending=sending)

    async def forget(self, run_id: str) -> None:
        """Stop all uploads of a run to trackers; nothing reads its folder when this returns."""
        tasks = [task for (run, _), (_, task) in self._feeds.items() if run == run_id]
        await cancel(*tasks)

    async def close(self) -> None:
        """Send what is left for up to `LEAVE_S` seconds, then stop. All runs must have ended."""
        self._leaving = True
        for look in self._looks.values():
            look.cancel()
        for feed, _ in self._feeds.values():
            feed.hurry(leaving=True)
        tasks = [task for _, task in self._feeds.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LEAVE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(
        self, folder: Path, spec: RunSpec, track: TrackConfig, names: list[TrackerName]
    ) -> None:
        async def say(level: str, text: str) -> None:
            await self._active.log(spec.id, level, text)

        def living() -> bool:
            return is_unfinished(folder) if read_record(folder) else spec.id in self._active

        source = Source(folder, spec, living, say)
        for name in names:
            known = self._feeds.get((spec.id, name))
            if known and not known[1].done():
                known[0].hurry()
            elif not self._leaving:
                feed = Feed(source, name, getattr(track, name), self.keys, self.pids)
                task = asyncio.create_task(feed.run(), name=f"{name} of {spec.name}")
                self._feeds[spec.id, name] = (feed, task)
                task.add_done_callback(partial(self._done, spec.id, name))

    def _done(self, run_id: str, name: TrackerName, task: "asyncio.Task[None]") -> None:
        if self._feeds[run_id, name][1] is task:  # else the run has gone on, and another tells
            del self._feeds[run_id, name]
        if not task.cancelled() and (error := task.exception()):
            sys.stderr.write(f"{TRACKERS[name]} of {run_id}: {error!r}\n")

    def _settings(self, folder: Path, spec: RunSpec) -> TrackConfig:
        try:
            return load_config(folder.parents[1]).track
        except ConfigError as error:
            if error.problem.code == "project.missing":  # the run was copied somewhere else
                return spec.config.track
            raise

    def _view(
        self, run_id: str, folder: Path, spec: RunSpec, name: TrackerName
    ) -> TrackerView | None:
        if known := self._feeds.get((run_id, name)):
            return known[0].view()
        cursor = read_cursor(folder, name)
        if cursor is None and not getattr(spec.config.track, name).on:
            return None
        if spec.kind not in TRACKED:
            return None
        cursor = cursor or Cursor()
        behind = count_unsent(folder, name, cursor.seq)
        state: TrackerState = "unsent" if behind or cursor.problem else "in_step"
        return view_of(name, state, behind, cursor.problem, cursor)


def _lacks(folder: Path, name: TrackerName) -> bool:
    cursor = read_cursor(folder, name)
    return is_unfinished(folder) or count_unsent(folder, name, cursor.seq if cursor else 0) > 0
