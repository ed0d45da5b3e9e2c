"""Source files of Atelier, and a hash that identifies their content."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from engine import __version__
from engine.launcher.engine_root import checkout

PARTS = ("engine", "packaging", "resources")
LEFT_OUT = {"__pycache__", "fonts", "icons", "screenshots", "theme"}
"""Excluded names: parts that only the desktop window needs, and compiled files."""


@cache
def build() -> str:
    """Build id: 12 hexadecimal digits that change with any source file."""
    digest = hashlib.sha256()
    for name, file in source_files():
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


def engine_id(kind: str) -> str:
    """Folder name on a server for an engine of this source and this kind, such as `gpu`."""
    return f"{__version__}-{build()}-{kind}"


def source_files() -> Iterator[tuple[str, Path]]:
    """Files of the checkout that an engine needs, with their relative names."""
    root = checkout()
    for part in PARTS:
        for file in sorted((root / part).rglob("*")):
            relative = file.relative_to(root)
            if file.is_file() and not LEFT_OUT & set(relative.parts):
                yield relative.as_posix(), file
