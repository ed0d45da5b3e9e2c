"""Text as it can be stored: half a surrogate pair, as a cut-off escape leaves it, is none."""

from typing import Any


def storable(value: Any) -> Any:
    """The same strings, lists and dictionaries with U+FFFD for every lone surrogate."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list | tuple):
        return [storable(one) for one in value]
    if isinstance(value, dict):
        return {storable(key): storable(one) for key, one in value.items()}
    return value


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
