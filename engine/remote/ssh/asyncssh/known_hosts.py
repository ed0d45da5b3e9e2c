"""OpenSSH's known_hosts files: read, match, append.

The format is that of sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Invalid lines are skipped, as OpenSSH
does.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from engine.remote.ssh.problems import known_hosts_unusable
from engine.runtime.files import sync_open
from engine.runtime.locks import lock_descriptor

MARKERS = ("", "cert-authority", "revoked")


@dataclass(frozen=True)
class Entry:
    """Line of a known_hosts file."""

    marker: str
    """"", "cert-authority" or "revoked"."""
    names: str
    key: asyncssh.SSHKey
    file: Path
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


def read_entries(files: Iterable[Path], *hosts: str) -> list[Entry]:
    """Entries of all existing files that match one of these hosts (all entries without hosts).
    Raises LaunchError `ssh.known_hosts_unusable`."""
    found: list[Entry] = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise known_hosts_unusable(str(file), error.strerror or str(error)) from error
        for number, line in enumerate(lines, 1):
            entry = _entry(line.strip(), file, number, hosts)
            if entry:
                found.append(entry)
    return found


def _entry(line: str, file: Path, number: int, hosts: tuple[str, ...]) -> Entry | None:
    marker = ""
    if line.startswith("@"):
        marker, _, line = line[1:].partition(" ")
    words = line.split(None, 1)
    if line.startswith("#") or len(words) < 2 or marker not in MARKERS:
        return None
    if hosts and not any(names_host(words[0], host) for host in hosts):
        return None
    try:
        return Entry(marker, words[0], asyncssh.import_public_key(words[1]), file, number)
    except asyncssh.KeyImportError:
        return None  # a kind that we do not know


def names_host(names: str, host: str) -> bool:
    """Whether the first field of a known_hosts line (`names`: patterns or a hash) matches a host in
    lower case (`[name]:port` for ports other than 22)."""
    if names.startswith("|"):
        return _hash_names(names, host)
    found = False
    for pattern in names.lower().split(","):
        if _matches(pattern.removeprefix("!"), host):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _matches(pattern: str, host: str) -> bool:
    wild = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(wild, host) is not None


def _hash_names(names: str, host: str) -> bool:
    try:
        _, kind, salt, digest = names.split("|")
        expected = base64.b64decode(digest, validate=True)
        return kind == "1" and hmac.compare_digest(_hash(base64.b64decode(salt), host), expected)
    except ValueError:  # not base64, or not four parts
        return False


def _hash(salt: bytes, host: str) -> bytes:
    return hmac.new(salt, host.encode(), hashlib.sha1).digest()


def append_key(file: Path, host: str, key: asyncssh.SSHKey, hashed: bool) -> None:
    """Append a host key to a known_hosts file and sync it to disk; `hashed`: with the host's name
    as a hash. A new file gets mode 0600. The file is locked against other Atelier processes. Raises
    LaunchError `ssh.known_hosts_unusable`."""
    name = host
    if hashed:
        salt = secrets.token_bytes(20)
        parts = (base64.b64encode(one).decode() for one in (salt, _hash(salt, host)))
        name = "|1|" + "|".join(parts)
    words = key.export_public_key("openssh").decode().split()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "r+b") as target:
            lock_descriptor(target.fileno(), None)
            end = target.seek(0, os.SEEK_END)
            target.seek(max(0, end - 1))
            begin = "" if end == 0 or target.read(1) == b"\n" else "\n"
            target.write(f"{begin}{name} {words[0]} {words[1]}\n".encode())
            sync_open(target)
    except OSError as error:
        raise known_hosts_unusable(str(file), error.strerror or str(error)) from error
