"""Our own source: its files, and a name for what is in them."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from engine import __version__
from engine.launcher.engine_root import checkout

PARTS = ("engine", "packaging", "resources")
LEFT_OUT = {"__pycache__", "fonts", "icons", "screenshots", "theme"}
"""Excluded: parts that only a window needs, and compiled files."""


@cache
def build() -> str:
    """12 hex digits that change with any file of the source."""
    digest = hashlib.sha256()
    for name, file in source_files():
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


def engine_id(kind: str) -> str:
    """The name of the folder that this source's engine has on a server."""
    return f"{__version__}-{build()}-{kind}"


def source_files() -> Iterator[tuple[str, Path]]:
    """Files of the checkout that an engine needs, with their names in it."""
    root = checkout()
    for part in PARTS:
        for file in sorted((root / part).rglob("*")):
            relative = file.relative_to(root)
            if file.is_file() and not LEFT_OUT & set(relative.parts):
                yield relative.as_posix(), file
