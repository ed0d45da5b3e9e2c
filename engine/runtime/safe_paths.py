"""Safe resolution of untrusted names into paths inside a folder."""

import os
from pathlib import Path

from engine.protocol.identifiers import check_path
from engine.protocol.problems import Refused

FILE_MODE = 0o644
"""Mode of every file from another machine, whatever mode that machine reports."""


def inside(folder: Path, name: str) -> Path:
    """Path of the file `name` below `folder`, with every existing parent resolved. Raises Refused
    if the name is not a relative path, if a symbolic link among its parents leaves the folder, or
    if the path itself is a link."""
    try:
        check_path(name)
    except ValueError as error:
        raise outside(name, str(error)) from None
    root = folder.resolve()
    target = root / name
    if not target.parent.resolve().is_relative_to(root):
        raise outside(name, "a link in it leads out of the folder")
    if target.is_symlink():
        raise outside(name, "it is a symbolic link on this machine")
    return target


def make_parents(folder: Path, target: Path) -> None:
    """Create the parent folders of `target`, a path below `folder` returned by `inside`. Raises
    Refused like `inside`, checked again after the creation."""
    target.parent.mkdir(parents=True, exist_ok=True)
    inside(folder, target.relative_to(folder.resolve()).as_posix())


def open_to_write(file: Path, append: bool = False) -> int:
    """Open a regular file for writing at its end (`append`), or else truncate it; a missing file is
    created. Returns its descriptor. Links are not followed. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(file, flags | (os.O_APPEND if append else os.O_TRUNC), FILE_MODE)


def outside(name: str, why: str) -> Refused:
    return Refused.of(
        "sync.outside",
        f"The path {name[:200]!a} is not allowed: {why}.",
        "Nothing was written. If the server is yours, check its processes.",
    )
