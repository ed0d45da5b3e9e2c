"""Connection stub: this machine's own sh, without SSH."""

import asyncio
from collections.abc import AsyncIterable, Callable
from pathlib import Path

from engine.protocol.problems import Problem
from engine.remote.ssh.base import Done


class LocalConnection:
    """Connection to this machine; `home` is the login's home folder, `path` its PATH."""

    server = "me@here:22"

    def __init__(self, home: Path, path: str = "/usr/local/bin:/usr/bin:/bin") -> None:
        self.home, self.path = home, path

    async def run(
        self,
        command: str,
        input: bytes | AsyncIterable[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
    ) -> Done:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.home,
            env={"HOME": str(self.home), "PATH": self.path},
        )  # fmt: skip
        assert process.stdin
        if isinstance(input, bytes):
            process.stdin.write(input)
        elif input is not None:
            async for block in input:
                process.stdin.write(block)
        out, err = await process.communicate()
        if on_stdout:
            on_stdout(out)
        assert process.returncode is not None
        return Done(process.returncode, out, err)

    async def upload(
        self, data: AsyncIterable[bytes], path: str, begin: int = 0, mode: int = 0o600
    ) -> None:
        existing = Path(path).read_bytes()[:begin] if begin else b""
        Path(path).write_bytes(existing + b"".join([block async for block in data]))
        Path(path).chmod(mode)

    async def forward(self, port: int, socket: Path) -> None:
        raise NotImplementedError

    async def wait_closed(self) -> Problem | None:
        return None

    async def close(self) -> None:
        """Do nothing: nothing is open."""
