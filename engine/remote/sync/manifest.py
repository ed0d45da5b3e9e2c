"""Manifests: lists of the files of a folder with size and hash."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pathspec

from engine.protocol.identifiers import check_path
from engine.protocol.problems import ConfigError
from engine.protocol.requests.sync import FileEntry, Manifest

RULES = ".atelierignore"
"""File of a project with rules, as in .gitignore, for files that are not uploaded."""
ALWAYS = (
    "/runs/",
    "/sweeps/",
    ".git/",
    ".venv/",
    "venv/",
    "__pycache__/",
    "node_modules/",
    "*.pyc",
    ".DS_Store",
    ".atelier/",
    ".env",
)
"""Rules for files that are never uploaded: runs, which are only downloaded, and places where people
keep secrets."""
MOST_BYTES = 2 * 10**9


def project_manifest(project: Path) -> Manifest:
    """Manifest of the files of a project that are uploaded to a server. Raises ConfigError where
    they are too large, or where a link leads out of the project."""
    rules = project / RULES
    lines = rules.read_text(encoding="utf-8").splitlines() if rules.is_file() else []
    files = listed(project, [*ALWAYS, *lines])
    _refuse_links_outside(project, files)
    found = Manifest(files=[entry_of(file, name) for name, file in files])
    if found.bytes > MOST_BYTES:
        largest = max(found.files, key=lambda one: one.bytes)
        raise ConfigError.of(
            "sync.too_large",
            f"{project.name} has {found.bytes / 1e9:.1f} GB to upload; the limit is "
            f"{MOST_BYTES / 1e9:.0f} GB. Its largest file is {largest.path} "
            f"({largest.bytes / 1e9:.1f} GB).",
            f"Exclude files in {RULES}, one rule per line as in .gitignore.",
            where=str(rules),
        )
    return found


def _refuse_links_outside(project: Path, files: list[tuple[str, Path]]) -> None:
    """Refuse links that lead out of the project: one could name any file of this machine, whose
    content would be sent."""
    root = project.resolve()
    for name, file in files:
        if file.is_symlink() and not file.resolve().is_relative_to(root):
            raise ConfigError.of(
                "sync.link_outside",
                f"{name} is a link to {file.resolve()}, outside the project, but only "
                "files in the project are uploaded.",
                f"Copy the file into the project, or exclude it in {RULES}.",
                where=str(file),
            )


def manifest(folder: Path, ignored: Sequence[str] = (), below: str = "") -> Manifest:
    """Manifest of every file in a folder that matches no rule in `ignored` (as in .gitignore);
    links to files count as their targets. With `below` only that file, or the files in that
    folder."""
    return Manifest(files=[entry_of(file, name) for name, file in listed(folder, ignored, below)])


def listed(folder: Path, ignored: Sequence[str] = (), below: str = "") -> list[tuple[str, Path]]:
    """Names and paths of the files in a folder that match no rule in `ignored`; with `below` only
    that file, or the files in that folder."""
    rules = pathspec.GitIgnoreSpec.from_lines(ignored)
    inside = below.rstrip("/") + "/"
    return sorted(
        (name, file)
        for name, file in _files(folder, folder, rules)
        if not below or name == below or name.startswith(inside)
    )


def _files(root: Path, folder: Path, rules: pathspec.GitIgnoreSpec) -> Iterator[tuple[str, Path]]:
    for entry in os.scandir(folder):
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if entry.is_dir(follow_symlinks=False):
            if not rules.match_file(f"{name}/"):
                yield from _files(root, path, rules)
        elif entry.is_file() and not rules.match_file(name):
            yield name, path


def entry_of(file: Path, name: str) -> FileEntry:
    """Manifest entry of a file's current content under the relative path `name`. Raises ConfigError
    if a server could not store that name."""
    try:
        check_path(name)
    except ValueError as error:
        raise ConfigError.of(
            "sync.bad_name",
            f"A file cannot be uploaded because of its name: {error}.",
            f"Rename the file, or exclude it in {RULES}.",
            where=str(file),
        ) from None
    digest = digest_of(file)
    return FileEntry(
        path=name, bytes=digest.bytes, sha256=digest.sha256, executable=digest.executable
    )


class Digest(NamedTuple):
    """Size in bytes, SHA-256 and executable bit of a file, independent of its name."""

    bytes: int
    sha256: str
    executable: bool


def digest_of(file: Path) -> Digest:
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
        status = os.fstat(source.fileno())
    return Digest(status.st_size, digest, bool(status.st_mode & 0o100))
