"""JSON that came from outside, parsed strictly: every defect is a ValueError.

The standard parser accepts NaN and Infinity, turns 1e999 into infinity, keeps the last of two equal
keys, and raises RecursionError for deep nesting; none of these may pass a boundary unseen.
"""

import json
import math
from typing import Any, NoReturn


def parse_json(text: str | bytes, unique: bool = True) -> Any:
    """The value of a JSON document; a byte order mark before it is allowed.

    Raises ValueError, in words, for what is not JSON, not UTF-8, nested too deeply, holds a number
    that is not finite or, with `unique`, has two equal keys in one object.
    """
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
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return found


DECODER = json.JSONDecoder(
    parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_unique
)
"""Decoder of a value at a position within a text (`raw_decode`); it may also raise
RecursionError."""
LENIENT = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
"""Takes the last of two equal keys, as the programs that wrote the file do."""
