"""Files that a server is given: resumed where they stopped, whole or not there at all."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from engine.protocol.problems import LaunchError
from engine.remote.tunnel.shell import Shell

BLOCK = 2**18
TRIES = 2


async def upload_file(
    shell: Shell,
    file: Path,
    target: str,
    sha256: str,
    sent: Callable[[int], None],
    mode: int = 0o600,
) -> None:
    """`target` holds these bytes afterwards, whoever was cut off before. `sent` hears of bytes,
    those that were there already among them. Raises LaunchError."""
    for _ in range(TRIES):
        here = await _begun(shell, target, sha256)
        if here is None:
            sent(file.stat().st_size)
            return
        sent(here)
        await shell.connection.upload(_blocks(file, here, sent), f"{target}.part", here, mode)
        if await _whole(shell, target, sha256):
            return
    raise LaunchError.of(
        "host.file_damaged",
        f"{file.name} arrives damaged at {shell.connection.server}.",
        "Check the disk there and try again.",
    )


async def _begun(shell: Shell, target: str, sha256: str) -> int | None:
    """Bytes that have arrived; None where all is there."""
    told = await shell.run(
        'mkdir -p "$(dirname "$target")"\n'
        'if [ -f "$target" ] && [ "$(sha256sum < "$target" | cut -c1-64)" = "$sum" ]; then\n'
        'echo whole; elif [ -f "$target.part" ]; then wc -c < "$target.part"; else echo 0; fi',
        what=f"take {Path(target).name}",
        target=target,
        sum=sha256,
    )
    return None if told.strip() == "whole" else int(told)


async def _whole(shell: Shell, target: str, sha256: str) -> bool:
    """By its hash; what is not goes."""
    told = await shell.run(
        'if [ "$(sha256sum < "$target.part" | cut -c1-64)" = "$sum" ]; then\n'
        'mv -f "$target.part" "$target" && echo whole; else rm -f "$target.part"; fi',
        what=f"keep {Path(target).name}",
        target=target,
        sum=sha256,
    )
    return told.strip() == "whole"


async def _blocks(file: Path, begin: int, sent: Callable[[int], None]) -> AsyncIterator[bytes]:
    with file.open("rb") as source:
        source.seek(begin)
        while block := await asyncio.to_thread(source.read, BLOCK):
            yield block
            sent(len(block))
