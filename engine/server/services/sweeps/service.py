"""Sweeps of an engine: plan, start, list, view, pause, resume and stop."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import checked_config
from engine.protocol.problems import AtelierError, Refused, StoreError
from engine.protocol.records.sweeps import (
    SweepPlan,
    SweepRecord,
    SweepState,
    SweepSummary,
    SweepView,
    Values,
)
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep
from engine.runtime.ids import run_name, ulid
from engine.server.bodies import path_of
from engine.server.event_stream import Broadcast
from engine.server.services.library import Library
from engine.server.services.runs.lifecycle import RunLifecycle
from engine.server.services.runs.queue import RunQueue
from engine.server.services.runs.start import check_sweep_run
from engine.server.services.sweeps.driver import SweepDriver
from engine.server.services.sweeps.store import SweepStore
from engine.storage.project import load_settings
from engine.training.sweep.changes import resumed, resumed_by_itself, with_state
from engine.training.sweep.plan import plan_of, settings_of, trials_of
from engine.training.sweep.record import ACTIVE, FOLDER
from engine.training.sweep.tracker import PAUSED
from engine.training.sweep.view import summary_of, view_of
from engine.trust.projects import is_trusted, require_trust


class SweepService:
    """Executes requests about sweeps; a start request repeated with the same key has no effect."""

    def __init__(
        self, library: Library, lifecycle: RunLifecycle, queue: RunQueue, broadcast: Broadcast
    ) -> None:
        self._lifecycle = lifecycle
        self._store = SweepStore(library, broadcast)
        self._driver = SweepDriver(self._store, library, lifecycle, queue, broadcast)
        self._by_key: dict[str, str] = {}
        self._starting = asyncio.Lock()
        self._opened = asyncio.Event()
        """Set when the sweeps of an earlier engine are resumed; requests wait for it."""

    @property
    def busy(self) -> bool:
        """Whether a sweep is running or waits for the device."""
        return self._store.oldest_active is not None

    async def open(self) -> None:
        """Resume the sweeps that were active when an earlier engine of this workspace ended."""
        try:
            for folder, record in await asyncio.to_thread(self._store.interrupted):
                again = resumed_by_itself(record)
                if again and self._may_resume(folder, record):
                    with contextlib.suppress(AtelierError):  # another engine works on it
                        await self._store.activate(folder)
                        await self._store.change(record.id, lambda r, again=again: again)  # type: ignore[misc]
        finally:
            self._opened.set()
        self._driver.wake()

    async def close(self) -> None:
        """Stop starting runs; active sweeps stay active on disk, and the next engine resumes
        them."""
        await self._driver.close()
        self._store.close()

    async def plan(self, request: StartSweep) -> SweepPlan:
        """Plan a sweep without starting it, after the checks of a start except that the project is
        trusted. Raises ConfigError, ModelError, Refused."""
        return (await self._prepare(path_of(request.project), request))[2]

    async def start(self, request: StartSweep) -> SweepView:
        """Start a sweep. Raises ConfigError, ModelError, Refused, then leaving no file."""
        await self._opened.wait()
        async with self._starting:
            if request.key and (known := self._by_key.get(request.key)):
                return await self.view(known)
            project = path_of(request.project)
            require_trust(project)
            settings, config, plan = await self._prepare(project, request)
            record = SweepRecord(
                id=ulid(),
                name=run_name(),
                project=config.name or project.name,
                started_at=time.time(),
                settings=settings,
                config=config,
                space=plan.space,
                planned=plan.trials,
                prune_at=plan.prune_at,
                state=self._first_state(),
                trials=tuple(await asyncio.to_thread(trials_of, plan, config, settings)),
            )
            await self._store.add(project / FOLDER / record.id, record)
            self._by_key[request.key or record.id] = record.id
        self._driver.wake()
        return await self.view(record.id)

    async def act(self, sweep_id: str, request: ActOnSweep) -> SweepView:
        """Pause, stop or resume a sweep. Raises Refused if its state does not allow it, StoreError
        if it is damaged."""
        await self._opened.wait()
        folder = self._store.folder(sweep_id)
        record = await asyncio.to_thread(self._store.current, folder)
        if request.action == "resume":
            await self._resume(folder, record, request)
        else:
            await self._halt(folder, record, request)
        self._driver.wake()
        return await self.view(sweep_id)

    async def listed(self, project: Path | None) -> list[SweepSummary]:
        """Sweeps of a project, or of all known ones, newest first; damaged ones are left out."""
        await self._opened.wait()
        folders = await asyncio.to_thread(self._store.folders, project)
        return await asyncio.to_thread(self._summaries, folders)

    async def view(self, sweep_id: str) -> SweepView:
        """View of a sweep with the table of its runs. Raises Refused if there is none, StoreError
        if it is damaged."""
        await self._opened.wait()
        folder = self._store.folder(sweep_id)
        return await asyncio.to_thread(self._view, folder)

    def page(self, sweep_id: str, after: int) -> tuple[list[str], int]:
        """Return ([view of the sweep as JSON], its revision) if the revision is above `after`, else
        ([], `after`), as event streams need it."""
        view = self._view(self._store.folder(sweep_id))
        return ([view.model_dump_json()], view.revision) if view.revision > after else ([], after)

    def _view(self, folder: Path) -> SweepView:
        record = self._store.current(folder)
        ids = [run.run_id for trial in record.trials for run in trial.runs]
        running = next((one for one in ids if one in self._lifecycle.active), "")
        return view_of(record, folder, running)

    def _summaries(self, folders: Sequence[Path]) -> list[SweepSummary]:
        found = []
        for folder in folders:
            with contextlib.suppress(StoreError):
                found.append(summary_of(self._store.current(folder), folder))
        return found

    async def _prepare(
        self, project: Path, request: StartSweep
    ) -> tuple[dict[str, Any], ProjectConfig, SweepPlan]:
        """Settings and plan of a sweep, after all checks of the project."""
        if request.host:
            raise Refused.of(
                "sweep.remote",
                "A sweep runs on the machine of its engine and cannot be started on a server from "
                "this machine.",
                "Run `atelier sweep` on the server, or start single runs there.",
            )
        settings, config = await asyncio.to_thread(load_settings, project, request.overrides)
        settings = {name: value for name, value in settings.items() if name != "sweep"}
        plan = await asyncio.to_thread(plan_of, config, settings)
        await check_sweep_run(project, config)
        for values in _named(plan):
            await check_sweep_run(project, checked_config(settings_of(settings, values, None)))
        return settings, config, plan

    async def _halt(self, folder: Path, record: SweepRecord, request: ActOnSweep) -> None:
        """Pause or stop a sweep, and its active run."""
        state = "paused" if request.action == "pause" else "stopped"
        if record.state == state:
            return
        if record.state == "finished":
            raise Refused.of("sweep.over", "This sweep has finished.")
        await self._store.activate(folder)
        record = await self._store.change(record.id, lambda r: with_state(r, state))  # type: ignore[arg-type]
        for run in [run for trial in record.trials for run in trial.runs]:
            if active := self._lifecycle.active.get(run.run_id):
                if state == "paused":
                    active.run.orders.stop(PAUSED.format(record.name))
                else:
                    await active.stop(f"Sweep {record.name} was stopped.")

    async def _resume(self, folder: Path, record: SweepRecord, request: ActOnSweep) -> None:
        if record.state == "finished":
            raise Refused.of(
                "sweep.over", "This sweep has finished.", "Start another sweep with more trials."
            )
        require_trust(folder.parents[1])
        if record.state in ACTIVE:
            return
        state = self._first_state()
        await self._store.activate(folder)
        record = await self._store.change(
            record.id, lambda r: with_state(resumed(r, request), state)
        )
        for run in [run for trial in record.trials for run in trial.runs]:
            if active := self._lifecycle.active.get(run.run_id):  # it has not stopped yet
                active.run.orders.give(stop=False)

    def _first_state(self) -> SweepState:
        """State of a sweep that starts or resumes now."""
        return "waiting" if self.busy or self._lifecycle.active else "running"

    @staticmethod
    def _may_resume(folder: Path, record: SweepRecord) -> bool:
        """Whether an interrupted sweep may resume by itself: in a trusted project, without a judge
        that needs API keys, which the ended engine had only in memory."""
        needs_keys = record.config.judge.enabled and bool(record.config.judge.models)
        return is_trusted(folder.parents[1]) and not needs_keys


def _named(plan: SweepPlan) -> list[Values]:
    """Each text value of a swept setting by itself, to be checked before the start: it may name a
    file or a model that does not exist."""
    return [
        {key: value}
        for key, values in plan.space.items()
        if isinstance(values, tuple)
        for value in values
        if isinstance(value, str)
    ]
