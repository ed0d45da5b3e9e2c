"""Parser of server addresses: [user@]host[:port], or an alias of the SSH configuration."""

import re
from dataclasses import dataclass

from engine.remote.ssh.problems import bad_address

_SHELL = "'\"`$;&<>|(){}!*?#\\\\"
"""Characters that mean something to a shell; refused, because host and user become words of a
ProxyCommand or of `Match exec`, which a shell runs. OpenSSH refuses them as well, since 9.6."""
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
    """Parse an address. Raises LaunchError `ssh.bad_address`."""
    found = _PATTERN.fullmatch(text)
    if not found:
        raise bad_address(text)
    port = int(found["port"]) if found["port"] else None
    if found["user"] == "" or (port is not None and not 0 < port < 65536):
        raise bad_address(text)
    return Address(found["six"] or found["bare"] or found["name"], found["user"], port)


def server_name(user: str, host: str, port: int) -> str:
    return f"{user}@[{host}]:{port}" if ":" in host else f"{user}@{host}:{port}"
