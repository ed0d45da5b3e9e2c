"""Routes of scripts that make their attempts themselves, and how their runs begin."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from engine.integrations.scripts.folders import differences, known_run, project_for, spec_for
from engine.integrations.scripts.logged_trajectories import store_logged
from engine.integrations.scripts.session import Desk, Script
from engine.protocol.events.run import RunFailed, RunStopped
from engine.protocol.problems import Refused
from engine.protocol.records.runs import LIVING, RunSpec
from engine.protocol.requests.scripts import (
    CloseOutside,
    LogOutside,
    OpenOutside,
    OutsideRun,
    TrainGroups,
)
from engine.server.bodies import body_of, json_of
from engine.server.services.library import Library
from engine.server.services.run_spec import versions
from engine.server.services.run_start import make_folder
from engine.server.services.supervisor import Supervisor
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE

Handler = Callable[[Request], Awaitable[Response]]

BY_HAND = "You "
"""How the reason of a run begins that a person has stopped."""


class OutsideRoutes:
    """A script opens its run, hands in groups, logs, and leaves."""

    def __init__(self, workspace: Path, library: Library, supervisor: Supervisor) -> None:
        self.workspace = workspace
        self.library = library
        self.supervisor = supervisor

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("POST", "/outside", self.open),
            ("POST", "/runs/{run}/outside/train", self.train),
            ("POST", "/runs/{run}/outside/log", self.log),
            ("POST", "/runs/{run}/outside/close", self.close),
        ]

    async def open(self, request: Request) -> Response:
        asked = await body_of(request, OpenOutside)
        spec, desk, notes = await self._opened(asked)
        step = await desk.ready()
        return json_of(
            OutsideRun(
                run=self.supervisor.summary(spec.id),
                step=step,
                base_url=self.supervisor.house.base_url,
                notes=notes,
            )
        )

    async def train(self, request: Request) -> Response:
        asked = await body_of(request, TrainGroups)
        return json_of(await self._desk(request).train(asked))

    async def log(self, request: Request) -> Response:
        asked, desk = await body_of(request, LogOutside), self._desk(request)
        chat = await desk.chat()
        async with self.supervisor.opened(request.path_params["run"]) as opened:
            await store_logged(opened.run, asked, desk.logs, desk.known, chat)
        return Response(status_code=204)

    async def close(self, request: Request) -> Response:
        asked, run_id = await body_of(request, CloseOutside), request.path_params["run"]
        desk = self.supervisor.house.desks.get(run_id)
        if desk is not None and desk.script.key == asked.key:
            desk.leave("Its script has ended.", asked.finished)
            await self.supervisor.ended(run_id)
        return json_of(self.supervisor.summary(run_id))

    def _desk(self, request: Request) -> Desk:
        """Raises Refused where nothing of the script is open."""
        run_id = request.path_params["run"]
        desk, run = self.supervisor.house.desks.get(run_id), self.supervisor.summary(run_id)
        if desk is None or run.state not in LIVING:  # it has ended, and its desk is being cleared
            raise Refused.of(
                "outside.not_open",
                f"The run of {run.name} is not going on.",
                "Start the script again: it goes on where the run stopped.",
            )
        return desk

    async def _opened(self, asked: OpenOutside) -> tuple[RunSpec, Desk, list[str]]:
        async with self.supervisor.beginning:
            project = await asyncio.to_thread(project_for, self.workspace, asked)
            found = await asyncio.to_thread(known_run, project, asked.model)
            if found is None:
                spec = await asyncio.to_thread(spec_for, project, asked, versions())
                await self.supervisor.admit()
                folder, notes = make_folder(project, spec), []
            else:
                folder, spec = found
                notes = await asyncio.to_thread(differences, spec, asked, project)
                if desk := await self._still_open(spec, asked):
                    return spec, desk, notes
                await self.supervisor.admit()
                if asked.again:
                    await asyncio.to_thread(_refuse_ended, spec, folder)
            self.library.remember(spec.id, folder)
            desk = await asyncio.to_thread(Desk, folder, spec, Script(asked))
            await self.supervisor.begin_outside(folder, desk)
            return spec, desk, notes

    async def _still_open(self, spec: RunSpec, asked: OpenOutside) -> Desk | None:
        """The desk of the same script; one whose script is gone is cleared first. Raises Refused
        while another script is at it."""
        desk = self.supervisor.house.desks.get(spec.id)
        if desk is None:
            return None
        if desk.left is None and asked.key == desk.script.key:
            return desk
        if desk.left is None and desk.script.alive and desk.script.pid != asked.pid:
            raise Refused.of(
                "outside.taken",
                f"Another script trains {spec.name} already (process {desk.script.pid}).",
                "Wait for it, end it, or give the model another name.",
            )
        desk.leave("Its script has ended.", False)
        await self.supervisor.ended(spec.id)
        return None


def _refuse_ended(spec: RunSpec, folder: Path) -> None:
    """A run that a person has stopped, or that failed, does not go on by itself."""
    reader = RunReader(folder / DATABASE)
    try:
        last = reader.events_of("run.started", "run.stopped", "run.failed", "run.finished")[-1]
    finally:
        reader.close()
    if isinstance(last, RunFailed):
        raise Refused(last.problem)
    if isinstance(last, RunStopped) and last.reason.startswith(BY_HAND):
        raise Refused.of(
            "outside.stopped",
            f"{spec.name} was stopped by hand at step {last.step}.",
            "Start the script again: it goes on from there.",
        )
