"""Child process of the engine, connected by a socket pair with one JSON message per line.

The engine sends `{"id", "op", …}`; the child answers `{"id", "part"}` any number of times, then
`{"id", "ok"}` or `{"id", "error"}` (a Problem). Every child also holds the read end of a *life
pipe* whose write end only the engine has: end of file means that the engine has exited, and the
child exits. Children inherit allow-listed environment variables and no other descriptor.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import psutil

from engine.protocol.problems import AtelierError, Problem
from engine.runtime.files import LOOK_S, shorten
from engine.runtime.variables import allowed_environment

LINE_LIMIT = 256 * 2**20
BATCH_LINES, BATCH_BYTES = 200, 2**18
"""Lines and bytes read from one child before other tasks of the event loop may run."""
SETTLED_S = 1.0
MOST_WORDS = 20_000
"""Longest field, in characters, of a problem that a child reports."""


class ChildDied(AtelierError):
    """Error of a request whose process ended (or was killed) before its answer."""


class Answer(NamedTuple):
    """Message from a child process."""

    number: int
    """Number of the request that this message answers."""
    kind: Literal["part", "ok", "error"]
    value: dict[str, Any]


def read_answer(line: bytes) -> Answer:
    """Parse a message of a child. Raises ValueError for any other text, since an agent's code can
    write to the socket itself."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, dict) or type(number := message.get("id")) is not int:
        raise ValueError("a message has no request id")
    for kind in ("error", "ok", "part"):
        if isinstance(value := message.get(kind), dict):
            return Answer(number, kind, _problem(value) if kind == "error" else value)
    raise ValueError("a message has neither a result nor an error")


def _problem(value: dict[str, Any]) -> dict[str, Any]:
    """Validated fields of a problem, shortened. Raises ValueError if they are invalid."""
    found = Problem.model_validate(value).model_dump()
    return {name: text[:MOST_WORDS] for name, text in found.items()}


class Process(Protocol):
    """Child process that can be waited for."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...


class Launch(NamedTuple):
    """Program to start as a child process in its own session."""

    argv: list[str]
    """Program and arguments; the last two are the numbers of socket and life pipe."""
    descriptors: tuple[int, ...]
    """Descriptors that the program inherits; the first are those of the socket and the life
    pipe."""
    output: int
    """Descriptor of the log, for stdout and stderr."""
    cwd: Path
    environment: dict[str, str]


async def start_program(launch: Launch) -> Process:
    """Start a new process. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *launch.argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=launch.output,
        stderr=launch.output,
        cwd=launch.cwd,
        env=launch.environment,
        pass_fds=launch.descriptors,
        start_new_session=True,
    )


class Child:
    """Running child process. Create it with `spawn`."""

    def __init__(
        self,
        name: str,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        life: int,
        log: Path,
    ) -> None:
        self.name = name
        self.process = process
        self._reader, self._writer, self._life = reader, writer, life
        self._waiting: dict[int, asyncio.Queue[Answer | None]] = {}
        """Queue of messages by request number; a None in it means that the process has ended."""
        self._ended: Problem | None = None
        self._pump = asyncio.create_task(self._read(), name=f"{name} reader")
        self._shortening = asyncio.create_task(_keep_short(log), name=f"{name} log")

    @classmethod
    async def spawn(
        cls,
        name: str,
        argv: list[str],
        *,
        cwd: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        line_limit: int = LINE_LIMIT,
        descriptors: Collection[int] = (),
        start: Callable[[Launch], Awaitable[Process]] = start_program,
    ) -> "Child":
        """Start `argv` in folder `cwd`, with the descriptor numbers of a socket and a life pipe
        appended and output to `log`. `name` is used in problems, `environment` is added to the
        allowed variables. A message over `line_limit` bytes ends the process. The process also
        inherits `descriptors`. Raises ChildDied."""
        ours, theirs = socket.socketpair()
        life_read, life_write = os.pipe()
        try:
            with log.open("ab") as output:
                line, life = theirs.fileno(), life_read
                process = await start(
                    Launch(
                        [*argv, str(line), str(life)],
                        (line, life, *descriptors),
                        output.fileno(),
                        cwd,
                        allowed_environment(environment),
                    )
                )
        except BaseException as error:
            ours.close()
            os.close(life_write)
            if not isinstance(error, OSError):
                raise
            raise ChildDied.of(
                f"{name}.not_started",
                f"The {name} could not be started: {error.strerror}.",
                where=argv[0],
            ) from error
        finally:
            theirs.close()
            os.close(life_read)
        reader, writer = await asyncio.open_connection(sock=ours, limit=line_limit)
        return cls(name, process, reader, writer, life_write, log)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self._ended is None

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send operation `op` with these arguments and wait for the answer. Raises ChildDied if the
        process ends before, or AtelierError with the problem that the child reports."""
        async for kind, value in self._exchange(op, fields):
            if kind == "ok":
                return value
        raise AssertionError("an exchange ends with an answer")

    async def stream(self, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        """Send operation `op` with these arguments; yields partial answers, then the final one.
        Closing the generator cancels the operation. Raises like `ask`."""
        async for _, value in self._exchange(op, fields):
            yield value

    async def close(self, grace_s: float = 5.0) -> None:
        """End the process and all its descendants, by force after `grace_s` seconds; returns when
        they have ended."""
        await self._end(descendants(self.process.pid), grace_s)

    async def kill(self) -> None:
        """Kill the process and its descendants at once."""
        family = descendants(self.process.pid)  # afterwards they are somebody else's
        _signal(self.process.pid, signal.SIGKILL)
        await self._end(family, 0.5)

    async def _end(self, family: list[psutil.Process], grace_s: float) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()
        self._close_life()
        try:
            await asyncio.wait_for(self.process.wait(), grace_s)
        except TimeoutError:
            _signal(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        await self._pump
        await asyncio.to_thread(end_processes, family)

    async def _exchange(
        self, op: str, fields: dict[str, Any]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        if self._ended:
            raise ChildDied(self._ended)
        number = secrets.randbits(52)  # not to be guessed: an agent's code can write to its line
        queue = self._waiting[number] = asyncio.Queue()
        answered = False
        try:
            await self._send({"id": number, "op": op, **fields})
            while not answered:
                message = await queue.get()
                if message is None:
                    answered = True
                    raise ChildDied(self._ended or self._death(None))
                answered = message.kind != "part"
                if message.kind == "error":
                    raise AtelierError(Problem.model_validate(message.value))
                yield message.kind, message.value
        finally:
            del self._waiting[number]
            if not answered and self.alive:
                with contextlib.suppress(ConnectionError, RuntimeError):
                    self._write({"id": number, "op": "cancel"})  # not drained: it may not read

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            self._write(message)
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            await asyncio.wait([self._pump], timeout=5)
            raise ChildDied(self._ended or self._death(None)) from error

    def _write(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        try:
            lines, taken = 0, 0
            while line := await self._reader.readline():
                message = read_answer(line)
                if queue := self._waiting.get(message.number):
                    queue.put_nowait(message)
                lines, taken = lines + 1, taken + len(line)
                if lines > BATCH_LINES or taken > BATCH_BYTES:
                    lines, taken = 0, 0
                    await asyncio.sleep(0)
            await self._gone_soon()
        except ConnectionError:
            await self._gone_soon()
        except ValueError as error:
            _signal(self.process.pid, signal.SIGKILL)
            why = (str(error).splitlines() or [""])[0][:200]
            self._ended = self._death(f"it sent an unreadable message ({why})")
        code = await self.process.wait()
        self._shortening.cancel()
        self._ended = self._ended or self._death(_exit_words(code))
        self._close_life()
        for queue in self._waiting.values():
            queue.put_nowait(None)

    async def _gone_soon(self) -> None:
        """Wait up to 5 s for the process to exit, then kill it: its socket is closed or broken."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), 5)
        if self.process.returncode is None:
            _signal(self.process.pid, signal.SIGKILL)

    def _close_life(self) -> None:
        life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    def _death(self, why: str | None) -> Problem:
        return Problem(
            code=f"{self.name}.died",
            message=f"The {self.name} process ended: {why or 'its connection closed'}.",
            hint="See the end of the run's log.",
        )


async def _keep_short(log: Path) -> None:
    """Shorten the child's log periodically, so that it cannot fill the disk."""
    while True:
        await asyncio.sleep(LOOK_S)
        shorten(log)


def end_processes(processes: list[psutil.Process]) -> None:
    """Kill processes that still run, identified by PID and start time, and wait for their end."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def reap_orphans(own_pids: Callable[[], Collection[int]] = tuple) -> int:
    """Kill orphaned descendants that were reparented to this process. Call it only while all other
    children are in `own_pids`, or in this process's session, which no agent can enter; their
    descendants are kept. A child that has just started may not be in `own_pids` yet, so the list is
    read again after a moment. Returns the number of killed processes."""
    strays = _strays(own_pids)
    if any(time.time() - _created_at(one) < SETTLED_S for one in strays):
        time.sleep(SETTLED_S)
        strays = [stray for stray in _strays(own_pids) if stray in strays]  # none is newer
    found = [each for stray in strays for each in (stray, *descendants(stray.pid))]
    end_processes(found)
    return len(found)


def _strays(own_pids: Callable[[], Collection[int]]) -> list[psutil.Process]:
    children, known = psutil.Process().children(), own_pids()
    return [child for child in children if child.pid not in known and not _in_session(child.pid)]


def _in_session(pid: int) -> bool:
    """Whether a process is in the session of this one, as a command that it runs for a moment."""
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return False


def _created_at(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.NoSuchProcess:
        return 0.0


def descendants(pid: int) -> list[psutil.Process]:
    """All descendants of a process, in any session; they can be found only while it runs."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    name = signal.Signals(-code).name
    return f"{name}: out of memory, or killed by another program" if code == -9 else name
