"""Run inside `unshare -Urm`: a disk of 300 KB fills up during an export.

argv: run folder, mount point. Prints the problem's code and the files left on the disk.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from engine.export import publish
from engine.export.job import export_checkpoint
from engine.protocol.problems import AtelierError
from engine.protocol.requests.exports import ExportCheckpoint


async def main(run: Path, disk: Path) -> None:
    publish.check_room = lambda folder, need: None  # type: ignore[assignment] # skip the check for free space

    async def record(event: object) -> None:
        raise AssertionError("there is nothing to record")

    request = ExportCheckpoint(format="merged", out=str(disk / "out"), shard_bytes=50_000)
    try:
        await export_checkpoint(run, None, request, lambda tick: None, record)
    except AtelierError as error:
        print(error.problem.code, sorted(path.name for path in disk.rglob("*")))


if __name__ == "__main__":
    folder, mount = Path(sys.argv[1]), Path(sys.argv[2])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(mount)], check=True)
    asyncio.run(main(folder, mount))
