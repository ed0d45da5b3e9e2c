"""Parser of server addresses: [user@]host[:port], or an alias of the SSH configuration."""

import glob
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from engine.remote.ssh.problems import bad_address, config_broken

_SHELL = "'\"`$;&<>|(){}!*?#\\\\"
"""Characters with a meaning in a shell; refused, because host and user become words of a
ProxyCommand or of `Match exec`, which a shell runs. OpenSSH 9.6 and newer refuse them as well."""
_CONTROL = "\\x00-\\x20\\x7f-\\xa0\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff"
_PATTERN = re.compile(
    rf"(?:ssh://)?(?:(?P<user>(?!-)[^\s{_CONTROL}{_SHELL}]*)@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<bare>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%\w]*)"
    rf"|(?P<name>(?!-)[^\s:@/\[\]%,={_CONTROL}{_SHELL}]+))"
    r"(?::(?P<port>\d{1,5}))?/?"
)


@dataclass(frozen=True)
class Address:
    host: str
    """Host name, IP address, or an alias of the SSH configuration."""
    user: str | None = None
    port: int | None = None


def parse_address(text: str) -> Address:
    """Parse an SSH address that a person entered. Raises LaunchError `ssh.bad_address`."""
    found = _PATTERN.fullmatch(text)
    if not found:
        raise bad_address(text)
    port = int(found["port"]) if found["port"] else None
    if found["user"] == "" or (port is not None and not 0 < port < 65536):
        raise bad_address(text)
    return Address(found["six"] or found["bare"] or found["name"], found["user"], port)


def server_name(user: str, host: str, port: int) -> str:
    return f"{user}@[{host}]:{port}" if ":" in host else f"{user}@{host}:{port}"


DEPTH = 16
"""Depth of nested Include, as ssh allows it."""
_WORD = re.compile(r"^\s*(?P<word>[A-Za-z]+)(?:\s*=\s*|\s+)(?P<rest>.*)$")


def config_hosts(config: Path | None = None) -> list[str]:
    """Host names of the `Host` lines of `config` (None: ~/.ssh/config) and its included files, in
    order without duplicates and patterns. Empty if there is no file. Raises LaunchError
    `ssh.config_broken`."""
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
