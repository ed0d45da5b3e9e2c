"""The wheels of an engine for another machine, in this one's cache."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.environments.bootstrap import bootstrap
from engine.environments.job import progress_of


@dataclass(frozen=True)
class Wheel:
    name: str
    file: Path
    sha256: str


async def bring_wheels(
    name: str,
    machine: str,
    libc: str,
    python: str,
    heard: Callable[[str, int, int], None],
    pids: set[int] | None = None,
) -> list[Wheel]:
    """Download the wheels of `uv`, `engine-cpu` or `engine-gpu` for Linux with this glibc and
    Python ("3.11"). Downloads are kept. `heard` gets a text, files done and files in total. Raises
    EnvironmentMissing."""
    there = ("--machine", machine, "--libc", libc or "2.28", "--python", python)
    argv = bootstrap("wheels", name, *there)
    last: dict[str, object] = {}
    async with contextlib.aclosing(
        progress_of(argv, name, set() if pids is None else pids)
    ) as said:
        async for last in said:
            if "done" in last:
                heard(str(last["words"]), int(last["done"]), int(last["total"]))  # type: ignore[call-overload]
    files: list[dict[str, str]] = last["files"]  # type: ignore[assignment]
    return [Wheel(one["name"], Path(one["file"]), one["sha256"]) for one in files]
