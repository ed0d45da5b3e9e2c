"""The aliases of a configuration that a person could mean."""

import glob
import os
import re
import shlex
from pathlib import Path

from engine.remote.ssh.problems import config_broken

DEPTH = 16
"""Depth of nested Include, as ssh allows it."""
_WORD = re.compile(r"^\s*(?P<word>[A-Za-z]+)(?:\s*=\s*|\s+)(?P<rest>.*)$")


def config_hosts(config: Path | None = None) -> list[str]:
    """In the order of the file, each once: names of `Host` lines without patterns, also behind
    Include. Empty where there is no file. Raises LaunchError `ssh.config_broken`."""
    home = Path("~/.ssh").expanduser()
    found: dict[str, None] = {}
    _collect(config or home / "config", home, found, 0)
    return list(found)


def _collect(file: Path, home: Path, found: dict[str, None], depth: int) -> None:
    if depth > DEPTH:
        raise config_broken(str(file), "it includes itself")
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise config_broken(str(file), error.strerror or str(error)) from error
    for number, line in enumerate(lines, 1):
        read = None if line.lstrip().startswith("#") else _WORD.match(line)
        word = read["word"].lower() if read else ""
        if not read or word not in ("host", "include"):
            continue
        try:
            values = shlex.split(read["rest"], comments=True)
        except ValueError as error:
            raise config_broken(f"{file}:{number}", str(error)) from error
        if word == "host":
            found.update((name, None) for name in values if not set(name) & set("*?!"))
        else:
            for pattern in values:
                _include(pattern, home, found, depth)


def _include(pattern: str, home: Path, found: dict[str, None], depth: int) -> None:
    """Read the files of an Include pattern as glob(3) matches them, `**` like `*`. Raises
    LaunchError `ssh.config_broken`."""
    try:
        path = home / os.path.expanduser(pattern)  # an absolute one stays what it is
        files = sorted(glob.glob(str(path), include_hidden=False))
    except ValueError as error:  # no name of a file at all
        raise config_broken(ascii(pattern[:200]), str(error)) from error
    for file in files:
        _collect(Path(file), home, found, depth + 1)
