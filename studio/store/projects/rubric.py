"""Rubric text: criteria, weights, and differences between versions. Free of I/O."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

FENCE = "---"
Sign = Literal[" ", "+", "-"]


@dataclass(frozen=True)
class Part:
    """Criterion: name, weight as written in the rubric, description for the judge."""

    name: str
    weight: float = 1.0
    words: str = ""


def parts_of(source: str) -> list[Part] | None:
    """Parse the criteria in the front matter; empty without any, None if it is invalid."""
    front, _ = _split(source)
    if front is None:
        return None if source.startswith(FENCE + "\n") else []
    try:
        entries = (yaml.safe_load(front) or {}).get("criteria") or []
        return [_part(entry) for entry in entries]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return None


def with_parts(source: str, parts: Sequence[Part]) -> str:
    """Return the rubric with these criteria as front matter; without criteria, it has none."""
    _, body = _split(source)
    if not parts:
        return body.lstrip("\n")
    entries = [_entry(part) for part in parts]
    front = yaml.safe_dump({"criteria": entries}, sort_keys=False, allow_unicode=True, width=10_000)
    return f"{FENCE}\n{front}{FENCE}\n{body if body.startswith(chr(10)) else chr(10) + body}"


def shares(parts: Sequence[Part]) -> list[float]:
    """Return the weights of the criteria divided by their sum."""
    total = sum(part.weight for part in parts)
    return [part.weight / total for part in parts] if total > 0 else [0.0 for _ in parts]


def moved(parts: Sequence[Part], boundary: int, share: float) -> list[Part]:
    """Move weight between the criteria `boundary` and `boundary` + 1, so that those up to
    `boundary` have `share` (0 to 1) of the total. Weights become whole percents; each keeps at
    least one."""
    percents = [max(1, round(100 * part)) for part in shares(parts)]
    before = sum(percents[:boundary])
    pair = percents[boundary] + percents[boundary + 1]
    first = min(pair - 1, max(1, round(100 * share) - before))
    percents[boundary], percents[boundary + 1] = first, pair - first
    return [
        Part(part.name, percent / 100, part.words)
        for part, percent in zip(parts, percents, strict=True)
    ]


def changed_lines(before: str, now: str) -> set[int]:
    """Return the numbers (from 0) of the lines of `now` that differ from `before`."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), now.splitlines(), autojunk=False)
    return {
        line
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag in ("replace", "insert")
        for line in range(start, end)
    }


def diff(before: str, now: str) -> list[tuple[Sign, str]]:
    """Return the lines of both versions as (sign, line), kept " ", removed "-" or added "+"."""
    lines: list[tuple[Sign, str]] = []
    for line in difflib.ndiff(before.splitlines(), now.splitlines()):
        sign = line[0]
        if sign in (" ", "+", "-"):
            lines.append((sign, line[2:]))  # type: ignore[arg-type]
    return lines


def _split(source: str) -> tuple[str | None, str]:
    """Split into front matter (or None) and text."""
    lines = source.split("\n")
    if lines[0].strip() != FENCE:
        return None, source
    for number, line in enumerate(lines[1:], 1):
        if line.strip() == FENCE:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :])
    return None, source


def _part(entry: dict[str, Any]) -> Part:
    weight = float(entry.get("weight", 1.0))
    if weight <= 0:
        raise ValueError("weights must be above 0")
    return Part(str(entry["name"]), weight, str(entry.get("words", "")))


def _entry(part: Part) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": part.name, "weight": round(part.weight, 4)}
    return {**entry, "words": part.words} if part.words else entry
