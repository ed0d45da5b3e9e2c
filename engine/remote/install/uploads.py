"""Uploads to a server: the source code as one archive, and single files. A file is complete or
absent, and an interrupted upload resumes where it stopped."""

import asyncio
import contextlib
import gzip
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.environments.bootstrap import bootstrap
from engine.environments.job import progress_of
from engine.launcher.source_files import build, source_files
from engine.protocol.problems import LaunchError
from engine.remote.tunnel.shell import Shell
from engine.runtime.files import replace_file

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
    """Upload `file`, which has the hash `sha256`, to the path `target` on the server, resuming an
    earlier upload. `sent` is called with increments in bytes, first with those uploaded earlier.
    Raises LaunchError if the file repeatedly arrives damaged."""
    for _ in range(TRIES):
        offset = await _uploaded_bytes(shell, target, sha256)
        if offset is None:
            sent(file.stat().st_size)
            return
        sent(offset)
        await shell.connection.upload(_blocks(file, offset, sent), f"{target}.part", offset, mode)
        if await _whole(shell, target, sha256):
            return
    raise LaunchError.of(
        "host.file_damaged",
        f"{file.name} was damaged during the upload to {shell.connection.server}.",
        "Check the disk there and try again.",
    )


async def _uploaded_bytes(shell: Shell, target: str, sha256: str) -> int | None:
    """Number of bytes uploaded so far; None if the complete file is on the server."""
    output = await shell.run(
        'mkdir -p "$(dirname "$target")"\n'
        'if [ -f "$target" ] && [ "$(sha256sum < "$target" | cut -c1-64)" = "$sum" ]; then\n'
        'echo whole; elif [ -f "$target.part" ]; then wc -c < "$target.part"; else echo 0; fi',
        what=f"take {Path(target).name}",
        target=target,
        sum=sha256,
    )
    return None if output.strip() == "whole" else int(output)


async def _whole(shell: Shell, target: str, sha256: str) -> bool:
    """Rename an uploaded file into place, or delete it and return False if its hash differs."""
    output = await shell.run(
        'if [ "$(sha256sum < "$target.part" | cut -c1-64)" = "$sum" ]; then\n'
        'mv -f "$target.part" "$target" && echo whole; else rm -f "$target.part"; fi',
        what=f"keep {Path(target).name}",
        target=target,
        sum=sha256,
    )
    return output.strip() == "whole"


async def _blocks(file: Path, begin: int, sent: Callable[[int], None]) -> AsyncIterator[bytes]:
    with file.open("rb") as source:
        source.seek(begin)
        while block := await asyncio.to_thread(source.read, BLOCK):
            yield block
            sent(len(block))


@dataclass(frozen=True)
class SourceArchive:
    file: Path
    build: str
    sha256: str

    @property
    def bytes(self) -> int:
        return self.file.stat().st_size


def source_archive() -> SourceArchive:
    """Return an archive of Atelier's source code, packed once into the user's cache; equal sources
    give equal bytes."""
    folder = Path(platformdirs.user_cache_dir("atelier")) / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"source-{build()}.tar.gz"
    if not file.exists():
        replace_file(file, _packed())
    return SourceArchive(file, build(), hashlib.sha256(file.read_bytes()).hexdigest())


def _packed() -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as tar,
    ):
        for name, file in source_files():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = file.stat().st_size, 0o644
            with file.open("rb") as source:
                tar.addfile(entry, source)
    return packed.getvalue()


@dataclass(frozen=True)
class Wheel:
    name: str
    file: Path
    sha256: str


async def bring_wheels(
    name: str, machine: str, libc: str, python: str, report: Callable[[str, int, int], None]
) -> list[Wheel]:
    """Download the wheels of `uv`, `engine-cpu` or `engine-gpu` to this machine's cache, for a
    Linux server of type `machine` (`x86_64`) with glibc `libc` (empty: 2.28) and Python `python`
    ("3.11"). `report` receives a text, files done and files in total. Raises EnvironmentMissing."""
    there = ("--machine", machine, "--libc", libc or "2.28", "--python", python)
    argv = bootstrap("wheels", name, *there)
    last: dict[str, object] = {}
    async with contextlib.aclosing(progress_of(argv, name, set())) as progress:
        async for last in progress:
            if "done" in last:
                report(str(last["words"]), int(last["done"]), int(last["total"]))  # type: ignore[call-overload]
    files: list[dict[str, str]] = last["files"]  # type: ignore[assignment]
    return [Wheel(one["name"], Path(one["file"]), one["sha256"]) for one in files]
