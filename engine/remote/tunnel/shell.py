"""Shell of a server: commands that run before an engine is installed there."""

import hashlib
import shlex
from collections.abc import AsyncIterable, Callable
from pathlib import Path

from engine.launcher.local import runtime_dir
from engine.protocol.problems import LaunchError, Problem
from engine.remote.ssh.base import Connection

BEGIN = "atelier-begins"
"""Line printed before a script; output of the login shell before it is ignored."""
FULL = ("No space left on device", "Disk quota exceeded")


class Shell:
    """POSIX shell of a server, with Atelier's base folder as $base."""

    def __init__(self, connection: Connection, base: str) -> None:
        self.connection = connection
        self.base = base
        self._forwards: dict[int, Path] = {}

    async def forward(self, port: int) -> Path:
        """Return a local private socket that is forwarded to a port on the server until the
        connection is closed. Raises LaunchError."""
        if port not in self._forwards:
            name = hashlib.sha256(f"{self.connection.server} {port}".encode()).hexdigest()[:12]
            socket = runtime_dir() / f"host-{name}.sock"
            await self.connection.forward(port, socket)
            self._forwards[port] = socket
        return self._forwards[port]

    async def find_base(self, folder: str) -> str:
        """Set and return Atelier's base folder on the server as an absolute path; creates nothing.
        `folder` is the configured one (empty: the default)."""
        path = folder or "~/.atelier-engine"
        output = await self.run(
            'case "$wanted" in /*) echo "$wanted";; "~"/*) echo "$HOME/${wanted#"~/"}";; '
            '*) echo "$HOME/$wanted";; esac',
            wanted=path,
        )
        self.base = output.strip().rstrip("/")
        return self.base

    async def run(
        self,
        script: str,
        input: bytes | AsyncIterable[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        what: str = "",
        **variables: str,
    ) -> str:
        """Run a script on the server with these shell `variables` and `input` as stdin; returns its
        stdout. Raises LaunchError with the end of stderr; `what` names the task in the message."""
        done = await self.connection.run(self.command(script, **variables), input, on_stdout)
        if done.code:
            raise LaunchError(self.problem(done.code, done.err.decode(errors="replace"), what))
        text = done.out.decode(errors="replace")
        return text.partition(f"{BEGIN}\n")[2]

    def command(self, script: str, **variables: str) -> str:
        known = {"base": self.base, **variables}
        assignments = "".join(f"{name}={shlex.quote(value)}\n" for name, value in known.items())
        return f"echo {BEGIN}\n{assignments}{script}\n"

    def problem(self, code: int | None, stderr: str, what: str) -> Problem:
        lines = [line.strip() for line in stderr.strip().splitlines() if line.strip()]
        last = lines[-1] if lines else f"exit {code}"
        server = self.connection.server
        if any(word in stderr for word in FULL):
            return Problem(
                code="host.disk_full",
                message=f"The disk of {server} is full: {self.base} has no space left.",
                hint="Free some space there, or use another folder; received data is kept.",
                detail=stderr[-4000:],
            )
        if "Permission denied" in last or "Read-only file system" in last:
            return Problem(
                code="host.not_writable",
                message=f"{server} refused to write: {last}.",
                hint="Use a folder that belongs to you.",
                detail=stderr[-4000:],
            )
        return Problem(
            code="host.command_failed",
            message=f"{server} could not {what or 'run the command'}: {last}.",
            hint="Try again; completed steps are skipped.",
            detail=stderr[-4000:],
        )
