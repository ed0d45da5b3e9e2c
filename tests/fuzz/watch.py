"""Detect and prevent writes outside a folder with a Python audit hook.

The hook cannot be removed from a process, so it is installed once and does nothing while no folder
is watched. SQLite and other native code write without audit events: a listing of the surrounding
folder, before and after, covers them.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {
    "os.rename": lambda args: args[:2],
    "os.link": lambda args: args[1:2],
    "os.symlink": lambda args: args[1:2],
    "os.remove": lambda args: (_joined(*args[:2]),),
    "os.rmdir": lambda args: (_joined(*args[:2]),),
    "os.mkdir": lambda args: args[:1],
    "os.truncate": lambda args: args[:1],
    "os.chmod": lambda args: args[:1],
    "shutil.rmtree": lambda args: args[:1],
}
"""Audit events that change a path, with the arguments that name it."""


def _joined(path: Any, descriptor: int) -> Any:
    """Return the path of a name relative to an open folder, as in shutil.rmtree."""
    if descriptor < 0:
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), os.fsdecode(path))


class WroteOutsideError(BaseException):
    """A write outside the watched folder; a BaseException, so that nothing swallows it."""


class _Watch:
    folder: str | None = None
    outside: list[str]
    installed = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    folder = _Watch.folder
    if folder is None:
        return
    if event == "open":
        path, _, flags = args
        paths: tuple[Any, ...] = (path,) if isinstance(flags, int) and flags & WRITING else ()
    elif event in CHANGING:
        paths = CHANGING[event](args)
    else:
        return
    for path in paths:
        if isinstance(path, int):
            continue
        name = os.fsdecode(path)
        if _is_outside(name, folder):
            _Watch.outside.append(f"{event} {name}")
            raise WroteOutsideError(f"{event} {name}")


def _is_outside(name: str, folder: str) -> bool:
    if name.startswith("/dev/") or "__pycache__" in name or name.startswith("/proc/self/"):
        return False
    real = os.path.realpath(name)
    return real != folder and not real.startswith(folder + os.sep)


@contextmanager
def watch_writes(folder: Path) -> Iterator[list[str]]:
    """Reject every write outside `folder` by Python code; yield the attempted writes."""
    if not _Watch.installed:
        sys.addaudithook(_hook)
        _Watch.installed = True
    _Watch.outside = []
    _Watch.folder = os.path.realpath(folder)
    try:
        yield _Watch.outside
    finally:
        _Watch.folder = None
