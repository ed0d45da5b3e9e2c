"""Strict patterns for addresses and model names that every parser reads the same way."""

import ipaddress
import re
from urllib.parse import urlsplit

ADDRESS = re.compile(
    r"https?://(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:%/-]*)?"
)
"""Address: http or https, a host, optionally a port and a path. User, query and ambiguous
characters are not allowed."""
MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]*(?:/[A-Za-z0-9_~][A-Za-z0-9_.:@+~-]*)*")
SCHEME = re.compile(r"(https?|wss?|ftp|file|unix):", re.I)


def normal_address(text: str) -> str:
    """Normalize an http(s) address: scheme and host in lower case, no default port, no final slash.
    Raises ValueError if the text is not an address."""
    if not ADDRESS.fullmatch(text):
        raise ValueError(
            "is not a URL: enter http:// or https:// and a host, without user name or API key"
        )
    parts = urlsplit(text)
    if parts.port == {"http": 80, "https": 443}[parts.scheme]:
        text = text.replace(f":{parts.port}", "", 1)
        parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def is_loopback(address: str) -> bool:
    """Return whether the host of an address is `localhost` or a loopback IP address."""
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_model(name: str) -> str:
    """Check the name of a provider's model (`PROVIDER/NAME`) and return it unchanged. Raises
    ValueError for an address, or another text that a client could take for more than a name."""
    if not MODEL.fullmatch(name) or any(
        SCHEME.match(part) or part in (".", "..") for part in name.split("/")
    ):
        raise ValueError(f"{name[:80]!a} is not a model name: enter PROVIDER/NAME, not a URL")
    return name
