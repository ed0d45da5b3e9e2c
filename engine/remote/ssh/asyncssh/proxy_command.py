"""ProxyCommand: a local process whose stdin and stdout carry the connection to the server."""

import asyncio
import contextlib
import os
import signal
import socket

from engine.runtime.closing import cancel


class Proxy:
    """ProxyCommand process, run by the person's shell as in OpenSSH, in its own session."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = bytearray()
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> socket.socket:
        """Start the proxy command; returns a socket that is connected to its stdin and stdout."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                os.environ.get("SHELL") or "/bin/sh",
                "-c",
                f"exec {self.command}",
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._listening = asyncio.create_task(self._listen(self._process))
        return ours

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(4096):
            self._stderr += chunk
            del self._stderr[:-8192]

    async def failed(self) -> str | None:
        """Last stderr of the command (or its exit code) if it has ended or ends within 0.5 s; None
        while it runs or before `start`."""
        if self._process is None or self._listening is None:
            return None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 0.5)
        if self._process.returncode is None:
            return None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listening), 0.5)
        output = self._stderr.decode(errors="replace").strip()
        return output or f"exit {self._process.returncode}"

    async def close(self) -> None:
        if self._process is None or self._listening is None:
            return
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 2)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        await cancel(self._listening)
