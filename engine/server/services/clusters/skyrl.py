"""SkyRL's server on this machine: started, watched and started again until it is stopped."""

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from engine.environments import installed_python
from engine.integrations.skyrl.server import (
    LOG_CHARS,
    SkyrlPlan,
    environment_here,
    free_port,
    skyrl_server,
)
from engine.integrations.skyrl.snapshots import delete_saved, delete_snapshots
from engine.models.registry import find_model
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.requests.clusters import DiscardSaved, SkyrlServer, StartSkyrl
from engine.runtime.closing import cancel
from engine.runtime.files import PRIVATE_MODE, replace_file
from engine.runtime.locks import Busy, released, take_lock

RESTART_S = (1.0, 5.0, 30.0)
"""Pauses in seconds before the server is started again after it has ended by itself."""
ELSEWHERE = "skyrl.elsewhere"
"""Code of the problem that another engine runs the server."""
TIDY_S = 60.0
"""Seconds between two deletions of old sampler snapshots."""
STEADY_S = 600.0
"""Seconds after which a running server counts as steady: earlier ends are forgotten."""


def skyrl_folder() -> Path:
    """Folder of the user with the state of the servers."""
    return Path(platformdirs.user_data_dir("atelier")) / "skyrl"


class SkyrlService:
    """The server of this machine, at most one. It ends with the engine; if the engine is killed,
    the next one starts it again."""

    def __init__(self, locate: Callable[[str], Path] = find_model) -> None:
        self.pids: set[int] = set()
        """PID of the server."""
        self.view = SkyrlServer()
        self._locate = locate
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether the server runs or is about to."""
        return self._task is not None and not self._task.done()

    async def open(self) -> None:
        """Start the server again that ran when the engine of this user was killed."""
        try:
            request = StartSkyrl.model_validate_json(_wanted_file().read_bytes())
        except FileNotFoundError:
            return
        except ValidationError:
            _wanted_file().unlink(missing_ok=True)
            return
        try:
            await self.start(request)
        except AtelierError as error:
            if error.problem.code == ELSEWHERE:  # that engine's server, not ours to report
                return
            _wanted_file().unlink(missing_ok=True)
            self.view = SkyrlServer(cluster=request.cluster, settings=request.settings)
            self._show("failed", problem=error.problem)

    async def close(self) -> None:
        """End the server for good: it is not started with the next engine."""
        await self.stop()

    async def start(self, request: StartSkyrl) -> SkyrlServer:
        """Begin to start the server, in place of one with other settings; no effect if it runs with
        these. Raises Refused while it runs as another cluster or if its folder cannot be written,
        ModelError if the model is not on this machine; a running server then goes on."""
        if self.busy and self.view.cluster == request.cluster:
            if self.view.settings == request.settings:
                return self.view
            await asyncio.to_thread(self._locate, request.settings.model)
            await self.stop()
        elif self.busy:
            raise Refused.of(
                "skyrl.other",
                f"SkyRL's server already runs on this machine, as the cluster {self.view.cluster} "
                f"with {self.view.settings.model if self.view.settings else 'another model'}.",
                f"Stop {self.view.cluster} first.",
            )
        try:
            plan = await asyncio.to_thread(_plan, request, self._locate)
            lock = await asyncio.to_thread(_take, plan.state, request)
        except OSError as error:
            raise Refused(_not_writable(error)) from error
        log = plan.state / "log"
        self.view = SkyrlServer(
            cluster=request.cluster,
            settings=request.settings,
            port=plan.port,
            environment=plan.environment,
            command=launch_command(plan),
            log=str(log),
        )
        self._show("starting")
        self._task = asyncio.create_task(self._keep(plan, log, lock), name="SkyRL's server")
        return self.view

    async def discard(self, request: DiscardSaved) -> None:
        """Delete a snapshot or saved state of the server that runs as this cluster."""
        if self.busy and self.view.cluster == request.cluster:
            await asyncio.to_thread(delete_saved, skyrl_folder() / request.cluster, request.path)

    async def stop(self) -> SkyrlServer:
        """End the server and wait for its end; its state is kept."""
        task, self._task = self._task, None
        if task is not None:  # else the file, if there is one, is that of another engine
            await asyncio.to_thread(_wanted_file().unlink, missing_ok=True)
            await cancel(task)
        self.view = SkyrlServer()
        return self.view

    async def _keep(self, plan: SkyrlPlan, log: Path, lock: int) -> None:
        """Run the server until it is stopped, or keeps ending."""
        with released(lock):
            ends = 0
            while True:
                try:
                    steady = await self._run(plan, log)
                    problem = await asyncio.to_thread(_ended, log)
                except AtelierError as error:
                    self._show("failed", problem=error.problem)
                    return
                except OSError as error:
                    self._show("failed", problem=_not_writable(error))
                    return
                ends = 1 if steady else ends + 1
                if ends > len(RESTART_S):
                    self._show("failed", problem=problem)
                    return
                self._show("restarting", problem=problem)
                await asyncio.sleep(RESTART_S[ends - 1])

    async def _run(self, plan: SkyrlPlan, log: Path) -> bool:
        """Start the server and wait for its end; returns whether it ran for `STEADY_S`."""
        if await asyncio.to_thread(installed_python, plan.environment) is None:
            self._show("installing", problem=self.view.problem)
        elif self.view.state != "restarting":
            self._show("starting")
        # no model is loaded after a restart, and runs resume from saved states alone
        await asyncio.to_thread(delete_snapshots, plan.state, 0, 0.0)
        try:
            async with skyrl_server(plan, log, self.pids.add) as process:
                started_s = time.monotonic()
                self._show("running")
                ended = asyncio.ensure_future(process.wait())
                while not (await asyncio.wait({ended}, timeout=TIDY_S))[0]:
                    await asyncio.to_thread(delete_snapshots, plan.state)
        finally:
            self.pids.clear()
        return time.monotonic() - started_s > STEADY_S

    def _show(self, state: str, problem: Problem | None = None) -> None:
        update = {"state": state, "problem": problem, "since": time.time()}
        self.view = self.view.model_copy(update=update)


def launch_command(plan: SkyrlPlan) -> str:
    """Command that starts the same server by hand, in SkyRL's environment."""
    return shlex.join(["python", "-m", "skyrl.tinker.api", "--host", "127.0.0.1", *plan.options])


def _plan(request: StartSkyrl, locate: Callable[[str], Path]) -> SkyrlPlan:
    """Plan of the server: model under its own name, and the port of the last start if free."""
    model = locate(request.settings.model)
    state = skyrl_folder() / request.cluster
    models = state / "models"
    models.mkdir(parents=True, exist_ok=True, mode=0o700)
    given = request.settings.model
    folder = Path(given).expanduser()
    named = models / (folder.resolve().name if folder.is_dir() else given.rpartition("/")[2])
    named.unlink(missing_ok=True)
    named.symlink_to(model.resolve())
    before, file = 0, state / "port"
    with contextlib.suppress(FileNotFoundError, ValueError):
        before = int(file.read_text())
    port = free_port(before)
    replace_file(file, f"{port}\n", PRIVATE_MODE)
    return SkyrlPlan(
        settings=request.settings,
        model=named,
        state=state,
        port=port,
        environment=environment_here(),
    )


def _take(state: Path, request: StartSkyrl) -> int:
    """Lock a server's folder and store the request; returns the lock. Raises Refused while another
    engine runs a server in it, OSError."""
    try:
        lock = take_lock(state / "lock", holder=f"process {os.getpid()}")
    except Busy as busy:
        raise Refused.of(
            ELSEWHERE,
            f"Another engine of yours on this machine runs this server ({busy.holder}).",
            "Stop it there, or choose another name.",
        ) from None
    try:
        replace_file(_wanted_file(), request.model_dump_json(), PRIVATE_MODE)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _wanted_file() -> Path:
    """File with the start request of the server that is to run."""
    return skyrl_folder() / "running.json"


def _not_writable(error: OSError) -> Problem:
    return Problem(
        code="skyrl.not_writable",
        message=f"The files of SkyRL's server cannot be used: {error.strerror or error}.",
        hint="Check the permissions and free space of their folder.",
        where=str(error.filename or skyrl_folder()),
    )


def _ended(log: Path) -> Problem:
    return Problem(
        code="skyrl.ended",
        message="SkyRL's server ended by itself.",
        hint="See its log.",
        where=str(log),
        detail=log.read_text(errors="replace")[-LOG_CHARS:],
    )
