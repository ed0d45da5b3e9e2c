"""A child process of the engine and its line: JSON, one message a line, over a socket pair.

We send `{"id", "op", …}`; the child answers `{"id", "part"}` any number of times, then
`{"id", "ok"}` or `{"id", "error"}` (a Problem). Every child also holds the read end of a *life
pipe* whose write end only the engine has: end of file there means that the engine is gone, and the
child exits.
Children get an allow-listed environment and no other descriptor.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

import psutil

from engine.protocol.problems import AtelierError, Problem

LINE_LIMIT = 256 * 2**20
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
KEPT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "HF_", "XDG_", "OMP_", "MKL_")
PR_SET_CHILD_SUBREAPER = 36


class ChildDied(AtelierError):
    """The process ended (or was killed) while somebody waited for it."""


def allowed_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child may see of our environment, plus `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    return kept | dict(extra or {})


def become_subreaper() -> None:
    """Orphaned grandchildren come back to this process instead of to init (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Child:
    """One running child. Make it with `spawn`."""

    _ids = itertools.count(1)

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        life: int,
    ) -> None:
        self.name = name
        self.process = process
        self._reader, self._writer, self._life = reader, writer, life
        self._waiting: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._ended: Problem | None = None
        self._pump = asyncio.create_task(self._read(), name=f"{name} reader")

    @classmethod
    async def spawn(
        cls,
        name: str,
        argv: list[str],
        *,
        cwd: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> "Child":
        """Start `argv` with two descriptor numbers appended: the line and the life pipe."""
        ours, theirs = socket.socketpair()
        life_read, life_write = os.pipe()
        try:
            with log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    str(theirs.fileno()),
                    str(life_read),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=cwd,
                    env=allowed_environment(environment),
                    pass_fds=(theirs.fileno(), life_read),
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            os.close(life_write)
            raise ChildDied.of(
                f"{name}.not_started",
                f"The {name} could not be started: {error.strerror}.",
                where=argv[0],
            ) from error
        finally:
            theirs.close()
            os.close(life_read)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)
        return cls(name, process, reader, writer, life_write)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self._ended is None

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request and wait for its answer. Raises ChildDied or the child's problem."""
        async for kind, value in self._exchange(op, fields):
            if kind == "ok":
                return value
        raise AssertionError("an exchange ends with an answer")

    async def stream(self, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        """Parts as they come, then the final answer; leaving early cancels the request."""
        async for _, value in self._exchange(op, fields):
            yield value

    async def close(self, grace_s: float = 5.0) -> None:
        """End the process and everything it has started; returns when all of it is gone."""
        await self._end(descendants(self.process.pid), grace_s)

    async def kill(self) -> None:
        """End it without grace."""
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
        number = next(self._ids)
        queue = self._waiting[number] = asyncio.Queue()
        answered = False
        try:
            await self._send({"id": number, "op": op, **fields})
            while not answered:
                message = await queue.get()
                if error := message.get("error"):
                    answered = True
                    died = message.get("died", False)
                    raise (ChildDied if died else AtelierError)(Problem.model_validate(error))
                kind = "ok" if "ok" in message else "part"
                answered = kind == "ok"
                yield kind, message[kind]
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
            while line := await self._reader.readline():
                message = json.loads(line)
                if queue := self._waiting.get(message["id"]):
                    queue.put_nowait(message)
        except ConnectionError:
            await self._gone_soon()
        except (ValueError, KeyError) as error:
            _signal(self.process.pid, signal.SIGKILL)
            self._ended = self._death(f"it sent something unreadable ({error})")
        code = await self.process.wait()
        self._ended = self._ended or self._death(_exit_words(code))
        self._close_life()
        for queue in self._waiting.values():
            queue.put_nowait({"error": self._ended.model_dump(), "died": True})

    async def _gone_soon(self) -> None:
        """A broken line is the first sign of an end; without it, what goes on is of no use."""
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
            message=f"The {self.name} process ended: {why or 'its line is closed'}.",
            hint="The end of the run's log says more.",
        )


def end_processes(processes: list[psutil.Process]) -> None:
    """Kill what is left of these and wait until it is gone; identity is pid plus start time."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def reap_orphans(spared: Collection[int] = ()) -> int:
    """Kill the grandchildren that came back to us, to be called while no child of ours is left but
    those in `spared`, who keep their own.

    Returns how many strays there were.
    """
    strays = [
        stray
        for child in psutil.Process().children()
        if child.pid not in spared
        for stray in (child, *descendants(child.pid))
    ]
    end_processes(strays)
    return len(strays)


def descendants(pid: int) -> list[psutil.Process]:
    """All that it has started and what these have, in whatever session; they are found only while
    it lives."""
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
    return f"{name}, out of memory or killed by somebody" if code == -9 else name
