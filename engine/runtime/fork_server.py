"""Client of a fork server: a child process that has imported large libraries and forks processes
that use them (`engine/runtime/preloaded.py`).

A forked process starts in milliseconds instead of the seconds of the imports. Linux only. If
forking fails, the process is started as a new program.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from engine.runtime.child import Launch, Process, start_program
from engine.runtime.life_pipe import adopt_orphans
from engine.runtime.paths import ROOT
from engine.runtime.variables import allowed_environment

FORK_S = 60.0
"""Timeout of a fork in seconds, including the imports of a new server."""
CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Whether the operating system supports fork servers."""


class ForkedProcess:
    """Child process that the fork server has forked."""

    def __init__(self, pid: int) -> None:
        """Watch a child process. Raises OSError if there is no such child."""
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watched = os.pidfd_open(pid)
        self._loop.add_reader(self._watched, self._reap)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _reap(self) -> None:
        self._loop.remove_reader(self._watched)
        os.close(self._watched)
        try:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            self.returncode = 255  # as asyncio says where something else has waited for it
        self._ended.set()


class ForkServer:
    """Fork server of this engine, started when it is first needed and again when it has exited."""

    def __init__(
        self,
        program: Sequence[str],
        variables: Mapping[str, str] | None = None,
        own_variables: Mapping[str, str] | None = None,
    ) -> None:
        """`program` is the command line of the server, `variables` are added to the allowed ones of
        the server and of the processes that it forks, `own_variables` to those of the server."""
        self._program, self._variables = tuple(program), variables
        self._own_variables = dict(own_variables or {})
        self._process: Process | None = None
        self._requests: socket.socket | None = None
        self._life = -1
        self._environment: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._answering: asyncio.Task[Process] | None = None

    @property
    def pids(self) -> list[int]:
        return [self._process.pid] if self._process and self._process.returncode is None else []

    async def warm(self) -> None:
        """Start the server unless it runs, without waiting for its imports, which take seconds."""
        async with self._turn:
            with contextlib.suppress(OSError):  # then the processes are started the usual way
                await self._ensured()
                assert self._requests is not None
                self._requests.send(b"{}")

    async def launch(self, launch: Launch) -> Process:
        """Start a process by forking. If forking fails, or the process needs another folder or
        other environment variables than the server was started with, start a new program
        instead."""
        async with self._turn:
            try:
                await self._ensured()
                if (launch.cwd, launch.environment) == (ROOT, self._environment):
                    return await self._fork(launch)
            except (OSError, TimeoutError, ValueError):
                await self._end()
        return await start_program(launch)

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    def inherit(self, text: str) -> None:
        """Use the server of a parent process; `text` has the descriptors of the request socket and
        of the life pipe (closed when the engine exits), and the PID. Raises OSError, ValueError."""
        requests, life, pid = map(int, text.split(","))
        self._process = ForkedProcess(pid)
        self._requests, self._life = socket.socket(fileno=requests), life
        self._requests.setblocking(False)
        os.set_inheritable(requests, False)
        os.set_inheritable(life, False)
        self._environment = allowed_environment(self._variables)

    async def _ensured(self) -> None:
        """Call `_ensure` to its end; a cancellation waits for it."""
        starting = asyncio.create_task(self._ensure(), name="fork server")
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            raise

    async def _ensure(self) -> None:
        """Start the server unless it runs. Raises OSError if that fails."""
        if self.pids:
            return
        await self._end()
        adopt_orphans()  # the processes that it forks become ours
        self._environment = allowed_environment(self._variables)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setblocking(False)
        life, self._life = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._program,
                str(theirs.fileno()),
                str(life),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
                env=self._environment | self._own_variables,
                pass_fds=(theirs.fileno(), life),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(life)

    async def _fork(self, launch: Launch) -> Process:
        assert self._requests is not None
        request = {
            "module": launch.argv[2],
            "cwd": str(launch.cwd),
            "environment": launch.environment,
        }
        descriptors = [*launch.descriptors, launch.output]
        if self._answering:  # whoever asked before has been cancelled
            await asyncio.wait([self._answering])
        socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        self._answering = asyncio.create_task(self._answer(self._requests), name="fork server")
        return await asyncio.shield(self._answering)

    async def _answer(self, requests: socket.socket) -> Process:
        """Receive the forked process; if this is cancelled, its socket closes, so that it exits."""
        async with asyncio.timeout(FORK_S):
            answer = await asyncio.get_running_loop().sock_recv(requests, 1000)
        return ForkedProcess(int(json.loads(answer)["pid"]))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if answering := self._answering:
            self._answering = None
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        if self._requests:
            self._requests.close()
            self._requests = None
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        if process:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await process.wait()
