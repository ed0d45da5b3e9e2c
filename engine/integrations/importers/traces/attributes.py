"""Attributes of spans as nested values: OTLP's typed values, dotted names and indexed lists."""

import contextlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from engine.runtime.text import replace_surrogates

SCALARS = ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value")
INTEGERS = ("intValue", "int_value")
SCALES = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Smallest Unix time in nano-, micro- and milliseconds, with the units in a second."""


def otlp_attributes(entries: Any) -> dict[str, Any]:
    """Convert OTLP's list of `{"key", "value"}` to a dictionary."""
    if isinstance(entries, dict):
        return entries
    return {entry["key"]: otlp_value(entry.get("value")) for entry in entries or []}


def otlp_value(value: Any) -> Any:
    """Convert a value of OTLP JSON (`{"stringValue": …}`, `{"arrayValue": {"values": […]}}` …)."""
    if not isinstance(value, dict):
        return value
    for name in SCALARS:
        if name in value:
            return value[name]
    for name in INTEGERS:  # 64-bit integers are text in OTLP JSON
        if name in value:
            return int(value[name])
    array = value.get("arrayValue", value.get("array_value"))
    if array is not None:
        return [otlp_value(one) for one in array.get("values") or []]
    pairs = value.get("kvlistValue", value.get("kvlist_value"))
    return otlp_attributes(pairs.get("values")) if pairs is not None else None


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest dotted names: `{"a.0.b": 1}` becomes `{"a": {"0": {"b": 1}}}`. A longer name replaces
    the plain value of a shorter one."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *folders, leaf = name.split(".")
        node = tree
        for folder in folders:
            inner = node.get(folder)
            if not isinstance(inner, dict):
                inner = node[folder] = {}
            node = inner
        if isinstance(node.get(leaf), dict) and isinstance(value, dict):
            node[leaf] = {**node[leaf], **value}
        elif not isinstance(node.get(leaf), dict):
            node[leaf] = value
    return tree


def value_at(tree: Any, path: str) -> Any:
    """Value at a dotted path of nested attributes; None if there is none."""
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def entries_of(value: Any) -> list[Any]:
    """List from a list, or from a dictionary with indices as keys, in their order."""
    value = decoded(value)
    if isinstance(value, dict):
        return [value[key] for key in sorted(value, key=int)]
    if value is None or isinstance(value, list):
        return value or []
    raise ValueError(f"a list is expected, not {value!r:.60}")


def decoded(value: Any) -> Any:
    """Value of a JSON text; any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return replace_surrogates(json.loads(value))
    return value


def seconds_of(value: Any) -> float:
    """Unix time in seconds of an ISO 8601 text (UTC without an offset), or of a number in seconds,
    milli-, micro- or nanoseconds; 0 if absent."""
    if value in (None, ""):
        return 0.0
    try:
        number = float(value)
    except ValueError:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number):
        raise ValueError(f"the time {value} is not finite")
    return number / next((units for least, units in SCALES if number >= least), 1.0)
