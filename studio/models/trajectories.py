"""Trajectories table with up to 100 000 rows, sorted, filtered and searched by the engine."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject

from engine.protocol.records.runs import TrajectorySummary
from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.columns import Column, ColumnsModel
from studio.runtime.tasks import TaskScope
from studio.text import formatting
from studio.theme.item_roles import ICON_ROLE, TONE_ROLE, VALUE_ROLE

KIND_WORDS = {"exclude": "excluded", "field": "fields", "order": "ranked", "score": "scored"}


def state_words(record: TrajectorySummary) -> str:
    """Describe why a trajectory is unscored, or that it was truncated; else empty."""
    if record.reward is None:
        return f"unscored · {record.problem.message}" if record.problem else "unscored"
    return "truncated at the token limit" if record.truncated else ""


def label_words(kinds: Sequence[str]) -> str:
    """Describe the labels of a trajectory, given by keys such as `best`: "best, gold"."""
    return ", ".join(KIND_WORDS.get(kind, kind) for kind in kinds)


COLUMNS: tuple[Column[TrajectorySummary], ...] = (
    Column("Scenario", "title", lambda r: r.title, right=False),
    Column("Step", "step", lambda r: f"{r.step}" if r.split == "train" else f"validation {r.step}"),
    Column("Index", None, lambda r: str(r.index + 1)),
    Column("Reward", "reward", lambda r: formatting.number(r.reward)),
    Column("Advantage", "advantage", lambda r: formatting.signed(r.advantage)),
    Column("Turns", "turns", lambda r: str(r.turns)),
    Column("Tokens", "tokens", lambda r: formatting.count(r.sampled_tokens or None)),
    Column("Time", "duration", lambda r: formatting.duration(r.duration_s or None)),
    Column("Labels", None, lambda r: label_words(r.labels), right=False),
    Column("Notes", None, state_words, right=False),
)


class TrajectoryTableModel(ColumnsModel[TrajectorySummary, TrajectoryQuery]):
    """Table of trajectories. `UserRole` is the record."""

    columns = COLUMNS
    unsorted = "recent"

    def __init__(self, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(tasks, TrajectoryQuery(), parent)

    def look(self, record: TrajectorySummary, title: str, role: int) -> Any:
        if role == TONE_ROLE and title == "Labels":
            return "bad" if "veto" in record.labels else "human"
        if role == ICON_ROLE and title == "Labels" and record.labels:
            return "user-round-check"
        if role == TONE_ROLE and title == "Notes":
            return "warn"
        if role == VALUE_ROLE and title == "Advantage":
            return record.advantage
        if role == ICON_ROLE and title == "Notes" and record.reward is None:
            return "circle-slash"
        return None
