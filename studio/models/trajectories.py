"""Trajectories table with up to 100 000 rows, sorted, filtered and searched by the engine."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt

from engine.protocol.records.judging import PART as RULER
from engine.protocol.requests.filters import TextSearch
from engine.protocol.requests.runs import TrajectoryQuery, TrajectoryRow
from studio.models.columns import Column, ColumnsModel
from studio.runtime.tasks import TaskScope
from studio.text import formatting
from studio.text.hits import hits, pattern_of_searches
from studio.theme.item_roles import HITS_ROLE, ICON_ROLE, TONE_ROLE, VALUE_ROLE

PART_WORDS = {RULER: "judge", "label": "you"}
KIND_WORDS = {"exclude": "excluded", "field": "fields", "order": "ranked", "score": "scored"}


def plain_line(text: str) -> str:
    """Return the beginning of a text on one line, control characters replaced by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:400])


def state_words(record: TrajectoryRow) -> str:
    """Describe why a trajectory is unscored, or that it was truncated; else empty."""
    if record.reward is None:
        return f"unscored · {record.problem.message}" if record.problem else "unscored"
    return "truncated at the token limit" if record.truncated else ""


def label_words(kinds: Sequence[str]) -> str:
    """Describe the labels of a trajectory, given by keys such as `best`: "best, gold"."""
    return ", ".join(KIND_WORDS.get(kind, kind) for kind in kinds)


def part_words(parts: Mapping[str, float]) -> str:
    """Describe the reward parts of a trajectory, before weights: "judge 0.62 · rules 0.30"."""
    named = ((PART_WORDS.get(name, name), value) for name, value in parts.items())
    words = " · ".join(f"{name} {formatting.number(value)}" for name, value in named)
    return words or formatting.ABSENT


COLUMNS: tuple[Column[TrajectoryRow], ...] = (
    Column("Scenario", "title", lambda r: r.title, right=False),
    Column("Step", "step", lambda r: f"{r.step}" if r.split == "train" else f"validation {r.step}"),
    Column("Index", None, lambda r: str(r.index + 1)),
    Column("Reward", "reward", lambda r: formatting.number(r.reward)),
    Column("Advantage", "advantage", lambda r: formatting.signed(r.advantage)),
    Column("Turns", "turns", lambda r: str(r.turns)),
    Column("Tokens", "tokens", lambda r: formatting.count(r.sampled_tokens or None)),
    Column("Time", "duration", lambda r: formatting.duration(r.duration_s or None)),
    Column(
        "Latency",
        None,
        lambda r: formatting.duration(r.facts.latency_s),
        help="Mean time per model call",
    ),
    Column(
        "Tool calls",
        None,
        lambda r: str(r.facts.tool_calls),
        help="Number of tool calls, and of results that look like errors",
    ),
    Column("Parts", None, lambda r: part_words(r.parts), right=False, help="Reward parts"),
    Column("Prompt", None, lambda r: plain_line(r.facts.prompt), right=False),
    Column(
        "Answer",
        None,
        lambda r: plain_line(r.facts.answer),
        right=False,
        help="First line of the last answer",
    ),
    Column("Judge's reason", None, lambda r: plain_line(r.reason), right=False),
    Column("Model", None, lambda r: r.contestant or r.provider, right=False),
    Column("Labels", None, lambda r: label_words(r.labels), right=False),
    Column("Notes", None, state_words, right=False),
)
TITLES = tuple(column.title for column in COLUMNS)
LONG = ("Scenario", "Prompt", "Answer", "Judge's reason", "Parts", "Notes")
"""Titles of the columns whose text may be longer than they are wide."""
FIRST_SHOWN = tuple(
    title
    for title in TITLES
    if title not in ("Latency", "Tool calls", "Parts", "Prompt", "Judge's reason", "Model")
)
"""Titles of the columns that are shown until the person chooses others."""


class TrajectoryTableModel(ColumnsModel[TrajectoryRow, TrajectoryQuery]):
    """Table of trajectories. `UserRole` is the record."""

    columns = COLUMNS
    unsorted = "recent"

    def __init__(self, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(tasks, TrajectoryQuery(), parent)
        self._patterns: dict[str, re.Pattern[str] | None] = {}

    def set_searches(self, searches: Sequence[TextSearch]) -> None:
        """Set the text searches of the filter, whose hits are marked."""
        kinds = {"Scenario": "text", "Prompt": "prompt", "Answer": "answer"}
        self._patterns = {
            title: pattern_of_searches(searches, kind) for title, kind in kinds.items()
        }

    def look(self, record: TrajectoryRow, title: str, role: int) -> Any:
        if role == TONE_ROLE and title == "Labels":
            return "bad" if "veto" in record.labels else "human"
        if role == ICON_ROLE and title == "Labels" and record.labels:
            return "user-round-check"
        if role == TONE_ROLE and title == "Notes":
            return "warn"
        if role == TONE_ROLE and title == "Judge's reason":
            return "judge"
        if title == "Tool calls" and record.facts.tool_errors:
            return {
                TONE_ROLE: "bad",
                Qt.ItemDataRole.ToolTipRole: f"{record.facts.tool_errors} results look like errors",
            }.get(role)
        if role == Qt.ItemDataRole.ToolTipRole and title in LONG:
            return next(one.words for one in COLUMNS if one.title == title)(record)
        if role == VALUE_ROLE and title == "Advantage":
            return record.advantage
        if role == ICON_ROLE and title == "Notes" and record.reward is None:
            return "circle-slash"
        if role == HITS_ROLE and (pattern := self._patterns.get(title)):
            words = next(one.words for one in self.columns if one.title == title)
            return hits(pattern, words(record))
        return None
