"""ControlMaster: the `ssh` process that holds a connection."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from engine.remote.ssh.openssh.command_line import OpenSSH
from engine.runtime.closing import cancel

KEPT_BYTES = 1 << 15
POLL_S = 0.02


GUARDED = """\
exec 3<&0; folder=$1; shift
(trap '' TERM; read gone <&3; kill -TERM 0; rm -rf "$folder") > /dev/null 2>&1 &
exec "$@" < /dev/null 3<&-
"""
"""Start `ssh` with a watchdog on our stdin pipe: when this process ends for any reason, it ends the
connection and deletes the private folder."""


class Master:
    """ControlMaster process in its own session, so that it has no terminal to prompt on."""

    def __init__(self, ssh: OpenSSH) -> None:
        self._ssh = ssh
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = bytearray()
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def stderr(self) -> str:
        """Last output of `ssh` on stderr."""
        return self._stderr.decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, to: list[str], variables: Mapping[str, str]) -> None:
        options = ["-M", "-N", "-S", str(self._ssh.control), *to]
        environment = {"DISPLAY": "-", **os.environ, **variables}  # before 8.4, no askpass without
        self._process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", GUARDED, "sh", str(self._ssh.folder), *self._ssh.command(*options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            umask=0o077,  # of a known_hosts that it makes
            env=environment,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def ready(self) -> bool:
        """Wait until the process accepts commands (True) or has ended before that (False)."""
        while self.alive:
            if self._ssh.control.exists():
                return True
            await asyncio.sleep(POLL_S)
        await self.ended()
        return False

    async def ended(self) -> None:
        """Wait until the process has ended and its output is read."""
        assert self._process
        assert self._reading
        await self._process.wait()
        with contextlib.suppress(TimeoutError):  # a ProxyCommand may hold its stderr
            await asyncio.wait_for(asyncio.shield(self._reading), 1)

    async def close(self) -> None:
        """End the process group, which includes processes of jump hosts."""
        if self._process is None or self._reading is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 2)
        assert self._process.stdin
        self._process.stdin.close()
        await cancel(self._reading)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr
        while chunk := await process.stderr.read(4096):
            self._stderr += chunk
            del self._stderr[:-KEPT_BYTES]
