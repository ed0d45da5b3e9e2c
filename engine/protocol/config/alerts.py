"""Alerts of a run: conditions on its metrics and validations, and their grammar."""

import re
from difflib import get_close_matches
from typing import Literal, NamedTuple

from pydantic import field_validator

from engine.protocol.base import Section
from engine.protocol.records.metrics import METRICS, metric

VALIDATION, UNSCORED = "validation", "unscored"
_CONDITION = re.compile(
    r"(?P<metric>[\w/.@-]+)\s*"
    r"(?:(?P<side>[<>])\s*|(?P<move>falls|rises)(?:\s+by)?\s*)"
    r"(?P<limit>[-+]?\d*\.?\d+(?:e[-+]?\d+)?)?\s*(?P<percent>%)?"
    r"(?:\s+for\s+(?P<steps>\d+)\s+steps?)?",
    re.IGNORECASE,
)
EXAMPLES = (
    "validation falls; unscored > 10 %; logprob_gap/mean > 0.1 for 3 steps; entropy falls by 50 %"
)


class Condition(NamedTuple):
    """Condition of an alert."""

    text: str
    metric: str
    """Key of a step metric; `validation`: the newest validation's mean reward or win rate."""
    kind: Literal["above", "below", "falls", "rises"]
    limit: float | None
    """Threshold (`above`, `below`) or size of the change (`falls`, `rises`); None: any
    significant change of the validation result."""
    percent: bool
    """Whether the limit was given in percent. For `falls` and `rises` the change is then relative
    to the best value so far; for `unscored` the limit is a share of the trajectories."""
    steps: int
    """Number of consecutive steps for which `above` and `below` have to hold."""


class AlertsConfig(Section):
    """Conditions that raise an alert in the window, in the terminal and on the desktop."""

    when: str = "validation falls; unscored > 10 %"
    """Conditions, separated by semicolons: a metric above or below a number (`entropy < 0.05 for 3
    steps`), or one that falls or rises (`entropy falls by 50 %`). `validation falls` means that the
    newest validation is significantly below the best one. Empty: no alerts."""

    @field_validator("when")
    @classmethod
    def _check_conditions(cls, text: str) -> str:
        conditions_of(text)
        return text


def conditions_of(text: str) -> list[Condition]:
    """Parse alert conditions separated by semicolons; an empty list for an empty text. Raises
    ValueError with a sentence about the first one that is invalid."""
    return [_condition(part.strip()) for part in text.split(";") if part.strip()]


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"has {text!r}, which is not a condition; examples: {EXAMPLES}")
    name, side, move = found["metric"], found["side"], found["move"]
    if name != VALIDATION and metric(name) is None:
        near = get_close_matches(name, [VALIDATION, *(one.key for one in METRICS)], 3, 0.5)
        hint = f"; similar metrics: {', '.join(near)}" if near else "; see Metrics in the help"
        raise ValueError(f"has {text!r}, but there is no metric {name!r}{hint}")
    limit = float(found["limit"]) if found["limit"] else None
    if limit is None and not (name == VALIDATION and move):
        raise ValueError(f"has {text!r} without a number; example: {name} > 0.5")
    if move and found["steps"]:
        raise ValueError(f'has {text!r}: "for N steps" is allowed only after > or <')
    if limit is not None and found["percent"]:
        limit /= 100
    if move and limit is not None and limit <= 0:
        raise ValueError(f"has {text!r}: the change must be a positive number")
    steps = int(found["steps"] or 1)
    if steps < 1:
        raise ValueError(f"has {text!r}: the number of steps must be at least 1")
    above: Literal["above", "below"] = "above" if side == ">" else "below"
    falls: Literal["falls", "rises"] = "falls" if move and move.lower() == "falls" else "rises"
    kind = falls if move else above
    return Condition(text, name, kind, limit, bool(found["percent"]), steps)
