"""Runs of external scripts, which make the rollouts themselves (ART)."""

import asyncio
from pathlib import Path

from engine.integrations.scripts.folders import differences, known_run, project_for, spec_for
from engine.integrations.scripts.session import Script, ScriptSession
from engine.protocol.events.run import RunFailed, RunStopped
from engine.protocol.problems import Refused
from engine.protocol.records.runs import ACTIVE_STATES, RunSpec, RunSummary
from engine.protocol.requests.scripts import CloseOutside, OpenOutside, OutsideRun
from engine.server.services.library import Library
from engine.server.services.runs.lifecycle import RunLifecycle
from engine.server.services.runs.start import make_folder, versions
from engine.server.services.runs.workers import RunResources
from engine.storage.run_folder.run import run_reader

BY_HAND = "You "
"""Prefix of the reason of a run that a person has stopped."""


class ScriptRuns:
    """Opens and closes the sessions of scripts."""

    def __init__(
        self, workspace: Path, library: Library, lifecycle: RunLifecycle, resources: RunResources
    ) -> None:
        self._workspace, self._library = workspace, library
        self._lifecycle, self._resources = lifecycle, resources

    async def open(self, request: OpenOutside) -> OutsideRun:
        """Begin or resume the run of an external script. Raises Refused while another run or script
        is active."""
        spec, session, notes = await self._opened(request)
        step = await session.ready()
        return OutsideRun(
            run=self._lifecycle.summary(spec.id),
            step=step,
            base_url=self._resources.base_url,
            notes=notes,
        )

    def session(self, run_id: str) -> ScriptSession:
        """Open session of the run of an external script. Raises Refused if it has none."""
        session = self._resources.script_sessions.get(run_id)
        run = self._lifecycle.summary(run_id)
        if session is None or run.state not in ACTIVE_STATES:  # it has ended, and is being closed
            raise Refused.of(
                "outside.not_open",
                f"The run {run.name} is not active.",
                "Start the script again: the run resumes where it stopped.",
            )
        return session

    async def close(self, run_id: str, request: CloseOutside) -> RunSummary:
        """End the session of a script (`request.finished` False: the script ended early) and wait
        for the end of its run; returns the run's summary. Nothing ends if `request.key` belongs to
        another session. Raises Refused for an unknown run."""
        session = self._resources.script_sessions.get(run_id)
        if session is not None and session.script.key == request.key:
            session.leave("The script has ended.", request.finished)
            await self._lifecycle.ended(run_id)
        return self._lifecycle.summary(run_id)

    async def _opened(self, request: OpenOutside) -> tuple[RunSpec, ScriptSession, list[str]]:
        async with self._lifecycle.starting:
            project = await asyncio.to_thread(project_for, self._workspace, request)
            found = await asyncio.to_thread(known_run, project, request.model)
            if found is None:
                spec = await asyncio.to_thread(spec_for, project, request, versions())
                await self._lifecycle.require_free()
                folder, notes = make_folder(project, spec), []
            else:
                folder, spec = found
                notes = await asyncio.to_thread(differences, spec, request, project)
                if session := await self._still_open(spec, request):
                    return spec, session, notes
                await self._lifecycle.require_free()
                if request.again:
                    await asyncio.to_thread(_refuse_ended, spec, folder)
            self._library.remember(spec.id, folder)
            session = await asyncio.to_thread(ScriptSession, folder, spec, Script(request))
            await self._lifecycle.begin_script(folder, session)
            return spec, session, notes

    async def _still_open(self, spec: RunSpec, request: OpenOutside) -> ScriptSession | None:
        """Open session of the same script; that of an ended script is closed first. Raises Refused
        while another script trains the run."""
        session = self._resources.script_sessions.get(spec.id)
        if session is None:
            return None
        if session.left is None and request.key == session.script.key:
            return session
        if session.left is None and session.script.alive and session.script.pid != request.pid:
            raise Refused.of(
                "outside.taken",
                f"Another script is already training {spec.name} (process {session.script.pid}).",
                "Wait for that script, end it, or give the model another name.",
            )
        session.leave("The script has ended.", False)
        await self._lifecycle.ended(spec.id)
        return None


def _refuse_ended(spec: RunSpec, folder: Path) -> None:
    """Raises Refused for a run that a person has stopped, or that failed: it must be restarted."""
    with run_reader(folder) as reader:
        last = reader.events_of("run.started", "run.stopped", "run.failed", "run.finished")[-1]
    if isinstance(last, RunFailed):
        raise Refused(last.problem)
    if isinstance(last, RunStopped) and last.reason.startswith(BY_HAND):
        raise Refused.of(
            "outside.stopped",
            f"{spec.name} was stopped by hand at step {last.step}.",
            "Start the script again: the run resumes from there.",
        )
