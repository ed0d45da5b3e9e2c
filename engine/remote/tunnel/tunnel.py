"""Tunnel to the engine of one server: connect, detect a lost connection, reconnect.

Every step has a timeout. After a failure the tunnel retries by itself (0.5 to 10 s apart, without
limit, or at once on request) or stops with instructions for the person. Runs of the remote engine
continue without it.
"""

import asyncio
import contextlib
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from engine.client import EngineClient
from engine.launcher.local import verify_engine
from engine.protocol import API_VERSION
from engine.protocol.problems import AtelierError, LaunchError, Problem, Refused
from engine.protocol.requests.home import Lease
from engine.protocol.requests.remote import HostReport, HostSpec, HostState, HostTick, Reached
from engine.protocol.requests.runs import EngineInfo
from engine.remote.install.install import Installer, remove_all, roll_back
from engine.remote.install.survey import survey
from engine.remote.ssh.base import Asker, Connection
from engine.remote.ssh.problems import may_pass
from engine.remote.tunnel.attach import read_line
from engine.remote.tunnel.shell import Shell
from engine.runtime.closing import cancel, closing

Connect = Callable[[HostSpec, Asker], Awaitable[Connection]]
Serve = Callable[[EngineClient], Coroutine[None, None, None]]

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
PING_S, SILENCE_S = 5.0, 15.0
ATTACHING_S = 120.0
ON_THE_WAY = ("install", "roll_back", "remove")
"""Jobs that are carried out by the server's shell, not by its engine."""
PASSING = {"engine.unreachable", "host.engine_silent", "host.command_failed", "engine.not_started"}
ENVIRONMENT = """
root="$base/on/$(uname -n)"
mkdir -p "$root/runtime" "$base/workspace" && chmod 700 "$base" "$root/runtime" || exit 1
export XDG_RUNTIME_DIR="$root/runtime" XDG_STATE_HOME="$base/state"
export XDG_CACHE_HOME="$base/cache" XDG_DATA_HOME="$base/data" XDG_CONFIG_HOME="$base/config"
cd "$base/current" || exit 1
"""
DETACH = (
    ENVIRONMENT
    + '.venv/bin/python -m engine attach --stop --workspace "$base/workspace" < /dev/null'
)
ATTACH = ENVIRONMENT + '.venv/bin/python -m engine attach --workspace "$base/workspace" < /dev/null'


class Tunnel:
    """Tunnel to the engine of one server. `changed` is called after every visible change. `serve`
    runs while connected and is cancelled with the connection."""

    def __init__(
        self,
        spec: HostSpec,
        lease: Lease,
        asker: Asker,
        connect: Connect,
        changed: Callable[[], None],
        serve: Serve,
    ) -> None:
        self.spec = spec
        self._lease, self._asker, self._connect = lease, asker, connect
        self._changed, self._serve = changed, serve
        self.state: HostState = "away"
        self.problem: Problem | None = None
        self.tick: HostTick | None = None
        self.report: HostReport | None = None
        self.reached: Reached | None = None
        self.info: EngineInfo | None = None
        self.latency_s: float | None = None
        self.failures = 0
        self.retry_at = 0.0
        self._client: EngineClient | None = None
        self._shell: Shell | None = None
        self._ports: set[int] = set()
        """Further ports on the server that are forwarded while connected."""
        self.job = ""
        """Requested job that is not carried out yet."""
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> EngineClient:
        """Client of the remote engine. Raises Refused while not connected."""
        if self._client is None:
            raise self._away()
        return self._client

    def _away(self) -> Refused:
        return Refused.of(
            "host.away",
            f"{self.spec.name} is not connected.",
            "Connect to the server; remote runs continue meanwhile.",
            detail=self.problem.message if self.problem else "",
        )

    @property
    def shell(self) -> Shell:
        """Shell of the server. Raises Refused while not connected."""
        if self._shell is None:
            raise self._away()
        return self._shell

    @property
    def _installed(self) -> bool:
        return self.report is not None and any(one.current for one in self.report.engines)

    async def forward(self, port: int) -> Path:
        """Return a local private socket that is forwarded to a port on the server, and again after
        every reconnection. Raises Refused while not connected, LaunchError."""
        self._ports.add(port)
        return await self.shell.forward(port)

    def connect(self) -> None:
        """Begin to connect and stay connected, reconnecting after failures; a pending retry happens
        at once."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(), name=f"host {self.spec.name}")
        self._hurry.set()

    def do(self, job: str) -> None:
        """Set the job to do on the server, replacing one that is pending: `install`, `roll_back`,
        `take_over` (the lease of another machine), `stop_engine` or `remove`; connects if
        needed."""
        self.job = job
        self.connect()

    async def disconnect(self) -> None:
        """Disconnect; remote runs continue."""
        task, self._task = self._task, None
        if task:
            await cancel(task)
        self._say("away", None)

    # How it is kept

    async def _keep(self) -> None:
        while True:
            self._hurry.clear()
            try:
                await self._once()
                return
            except AtelierError as error:
                await self._wait_after(error.problem)
            except Exception as error:  # noqa: BLE001 - whatever it is, the person hears of it
                await self._wait_after(_defect(error))

    async def _wait_after(self, problem: Problem) -> None:
        """Wait until the next retry is due or requested."""
        self.tick = None
        failed_job = self.job and problem.code == "host.command_failed"
        if may_pass(problem) or (problem.code in PASSING and not failed_job):
            self.failures += 1
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.failures - 1, 10))
            wait_s *= random.uniform(0.8, 1.0)
            self.retry_at = time.time() + wait_s
            self._say("reconnecting", problem)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), wait_s)
        else:
            self.failures, self.retry_at = 0, 0.0
            self.job = ""
            self._say("stopped", problem)
            await self._hurry.wait()

    async def _once(self) -> None:
        """Connect, prepare and use the engine until the connection is lost (raises), or until
        Atelier is removed from the server (returns)."""
        self._say("connecting", self.problem)
        async with closing(await self._connect(self.spec, self._asker)) as connection:
            shell = Shell(connection, self.report.folder if self.report else "")
            if self.reached and not self.job:
                await self._use_again(self.reached, shell)
            await shell.find_base(self.spec.folder)
            self.report = await survey(shell, self.spec.engine)
            while await self._work(shell):
                pass

    async def _work(self, shell: Shell) -> bool:
        """Carry out the requested job, then attach to the engine; True if another job was requested
        meanwhile."""
        if self.job in ON_THE_WAY and await self._do(self.job, shell):
            self._say("away", None)
            return False
        if not self._installed:
            raise Refused.of(
                "host.not_installed",
                f"There is no engine on {self.spec.name} yet.",
                "Check the server, then install the engine.",
            )
        await self._use(await self._attach(shell), shell)
        return True

    async def _use_again(self, reached: Reached, shell: Shell) -> None:
        """Use the engine at the address known from before the reconnect; forget the address if no
        engine answers there."""
        try:
            await self._use(reached, shell)
        except LaunchError as error:
            if error.problem.code != "host.engine_silent":
                raise
            self.reached = None

    async def _use(self, reached: Reached, shell: Shell) -> None:
        """Use the engine until another job is requested; raises if the connection is lost."""
        socket = await shell.forward(reached.port)
        async with EngineClient(reached.port, reached.token, socket=socket) as client:
            await self._greet(client, reached, socket)
            for port in self._ports:
                await shell.forward(port)
            self._client, self._shell, self.reached = client, shell, reached
            self.failures, self.tick = 0, None
            self._say("connected", None)
            try:
                await self._until_lost(shell.connection, client)
            finally:
                self._client = self._shell = None

    async def _do(self, job: str, shell: Shell) -> bool:
        """Carry out a shell job; True if Atelier was removed from the server."""
        self._say("installing", None)
        assert self.report is not None
        self.reached = None
        if job == "install":
            offline = self.spec.offline
            await Installer(shell, self.report, self._show, offline).install()
        elif job == "roll_back":
            await roll_back(shell)
        else:
            self._show(HostTick(stage="removing", words="Atelier's files"))
            await self._stop_engine(shell)
            await remove_all(shell)
        self.tick = None
        self.report = await survey(shell, self.spec.engine)
        if self.job == job:
            self.job = ""
        return job == "remove"

    async def _attach(self, shell: Shell) -> Reached:
        """Start the server's engine if needed and return its address. Raises LaunchError with the
        engine's own message."""
        self._say("starting", None)
        try:
            async with asyncio.timeout(ATTACHING_S):
                done = await shell.connection.run(shell.command(ATTACH))
        except TimeoutError:
            raise LaunchError.of(
                "host.engine_silent",
                f"The engine on {self.spec.name} did not start within {ATTACHING_S:.0f} s.",
                "Retrying automatically.",
            ) from None
        output = done.out.decode(errors="replace")
        try:
            reached = read_line(output)
        except ValueError:
            error = done.err.decode(errors="replace")
            raise LaunchError(shell.problem(done.code, error, "start the engine")) from None
        if isinstance(reached, Problem):
            raise LaunchError(reached)
        if reached.api[0] != API_VERSION[0]:
            raise Refused.of(
                "host.other_version",
                f"The engine on {self.spec.name} has another version ({reached.version}).",
                "Update the engine; its active run is stopped first and can be resumed.",
            )
        return reached

    async def _greet(self, client: EngineClient, reached: Reached, socket: Path) -> None:
        """Verify that the engine has the token before it is sent, then take the lease."""
        if not await verify_engine(reached.port, reached.token, socket):
            raise LaunchError.of(
                "host.engine_silent",
                f"A program other than the Atelier engine responds on {self.spec.name}.",
                "Retrying automatically.",
            )
        if self.job == "stop_engine":
            self.job = ""
            await client.shut_down()
            raise Refused.of("host.engine_stopped", f"The engine on {self.spec.name} was stopped.")
        take_over = self.job == "take_over"
        if take_over:
            self.job = ""
        await client.lease(self._lease.model_copy(update={"take_over": take_over, "fresh": True}))
        self.info = await client.info()

    async def _until_lost(self, connection: Connection, client: EngineClient) -> None:
        """Return when a job is requested; raises if the connection or the engine is lost."""
        closed = asyncio.create_task(connection.wait_closed())
        pinging = asyncio.create_task(self._ping(client))
        serving = asyncio.create_task(self._serve(client))
        job_wait = asyncio.create_task(self._wait_for_job())
        tasks = {closed, pinging, serving, job_wait}
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(*tasks)
        if closed in ended:
            problem = closed.result() or _let_go(self.spec.name)
            raise LaunchError(problem)
        for task in ended:
            task.result()

    async def _wait_for_job(self) -> None:
        while not self.job:
            self._hurry.clear()
            await self._hurry.wait()

    async def _ping(self, client: EngineClient) -> None:
        """Renew the lease. Raises LaunchError where the engine does not answer."""
        while True:
            started_at = time.monotonic()
            try:
                async with asyncio.timeout(SILENCE_S):
                    await client.lease(self._lease)
                    info = await client.info()
            except TimeoutError:
                raise LaunchError.of(
                    "host.engine_silent",
                    f"The engine on {self.spec.name} does not answer.",
                    "Retrying automatically.",
                ) from None
            self.info, self.latency_s = info, (time.monotonic() - started_at) / 2
            self._changed()
            await asyncio.sleep(PING_S)

    async def _stop_engine(self, shell: Shell) -> None:
        """Shut down the server's engine. Raises Refused while its runs are active."""
        if not self._installed:
            return
        done = await shell.connection.run(shell.command(DETACH))
        if done.code:
            output = done.out.decode(errors="replace")
            try:
                problem = read_line(output)
            except ValueError:
                error = done.err.decode(errors="replace")
                raise LaunchError(shell.problem(done.code, error, "stop the engine")) from None
            assert isinstance(problem, Problem)
            raise Refused(problem)
        await shell.run(
            'n=0; until flock -n "$base/workspace/.atelier/lock" true || [ $n -ge 60 ]\n'
            "do sleep 0.5; n=$((n+1)); done",
            what="wait for the engine to stop",
        )

    def _show(self, tick: HostTick) -> None:
        self.tick = tick
        self._changed()

    def _say(self, state: HostState, problem: Problem | None) -> None:
        self.state, self.problem = state, problem
        self._changed()


def _defect(error: Exception) -> Problem:
    return Problem(
        code="host.bug",
        message=f"Unexpected error: {type(error).__name__}: {error}",
        hint="Connect again, and report this error with its details.",
        detail="".join(traceback.format_exception(error))[-8000:],
    )


def _let_go(name: str) -> Problem:
    return Problem(code="ssh.lost", message=f"The connection to {name} was closed.")
