"""Strict parsing of untrusted JSON: every defect is a ValueError.

The standard parser accepts NaN and Infinity, turns 1e999 into infinity, keeps the last of two equal
keys, and raises RecursionError for deep nesting; all of these are errors here.
"""

import json
import math
from typing import Any, NoReturn


def parse_json(text: str | bytes, unique: bool = True) -> Any:
    """Parse a JSON document, with an optional byte order mark. Raises ValueError with a readable
    message if the text is not JSON, not UTF-8, nested too deeply, contains a number that is not
    finite or, with `unique`, has two equal keys in one object."""
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        return (DECODER if unique else LENIENT).decode(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {duplicate[:40]!r} occurs twice")
    return result


DECODER = json.JSONDecoder(
    parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_unique
)
"""Strict decoder of a value at a position within a text (`raw_decode`); may also raise
RecursionError."""
LENIENT = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
"""Decoder that keeps the last of two equal keys, as the programs that wrote the file do."""
