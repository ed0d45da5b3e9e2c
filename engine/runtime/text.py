"""Text from outside: strings without lone surrogates, which cannot be stored, and JSON that is safe
to use."""

from collections.abc import Iterable
from typing import Any

from engine.protocol.json_text import parse_json

MOST_DEPTH = 100


def replace_surrogates(value: Any) -> Any:
    """Copy of strings, lists and dictionaries with U+FFFD for every lone surrogate."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list | tuple):
        return [replace_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(one) for key, one in value.items()}
    return value


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def parse_shallow(text: str | bytes) -> Any:
    """Parse JSON from an agent or a model, like `parse_json`, nested at most `MOST_DEPTH` levels so
    that recursive code can process it. Raises ValueError for any other input."""
    value = parse_json(text, unique=False)
    opened = text.count("[") + text.count("{") if isinstance(text, str) else _opened(text)
    if opened > MOST_DEPTH and _is_deep(value):
        raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")
    return value


def _opened(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
