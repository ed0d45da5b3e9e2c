"""The trajectories table: 100 000 rows, of which the engine sorts, filters and searches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Qt

from engine.protocol.records import TrajectorySummary
from engine.protocol.requests import TrajectoryQuery
from studio import figures
from studio.models.heads import LEFT, RIGHT, head
from studio.models.paged import ROOT, Index, PagedModel
from studio.roles import ICON_ROLE, TONE_ROLE, VALUE_ROLE
from studio.tasks import TaskScope

KIND_WORDS = {"exclude": "left out", "order": "ranked", "score": "scored"}


@dataclass(frozen=True)
class Column:
    title: str
    sort: str | None
    words: Callable[[TrajectorySummary], str]
    right: bool = True


def state_words(record: TrajectorySummary) -> str:
    """Why it is unscored, or what else is to be known of it."""
    if record.reward is None:
        return f"unscored · {record.problem.message}" if record.problem else "unscored"
    return "hit the token limit" if record.truncated else ""


def label_words(kinds: Sequence[str]) -> str:
    """What a person says of it: best, gold."""
    return ", ".join(KIND_WORDS.get(kind, kind) for kind in kinds)


COLUMNS = (
    Column("Scenario", "title", lambda r: r.title, right=False),
    Column("Step", "step", lambda r: f"{r.step}" if r.split == "train" else f"test {r.step}"),
    Column("Sibling", None, lambda r: str(r.index + 1)),
    Column("Reward", "reward", lambda r: figures.number(r.reward)),
    Column("Advantage", "advantage", lambda r: figures.signed(r.advantage)),
    Column("Turns", "turns", lambda r: str(r.turns)),
    Column("Tokens", "tokens", lambda r: figures.count(r.sampled_tokens or None)),
    Column("Time", "duration", lambda r: figures.duration(r.duration_s or None)),
    Column("Labels", None, lambda r: label_words(r.labels), right=False),
    Column("Notes", None, state_words, right=False),
)


class TrajectoryTableModel(PagedModel[TrajectorySummary, TrajectoryQuery]):
    """`UserRole` is the record."""

    def __init__(self, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(tasks, TrajectoryQuery(), parent)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        titles = [column.title for column in COLUMNS]
        right = [place for place, column in enumerate(COLUMNS) if column.right]
        return head(titles, right, section, orientation, role)

    def cell(self, record: TrajectorySummary, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return COLUMNS[column].words(record)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if COLUMNS[column].right else LEFT
        title = COLUMNS[column].title
        if role == TONE_ROLE and title == "Labels":
            return "bad" if "veto" in record.labels else "human"
        if role == ICON_ROLE and title == "Labels" and record.labels:
            return "user-round-check"
        if role == TONE_ROLE and COLUMNS[column].title == "Notes":
            return "warn"
        if role == VALUE_ROLE and COLUMNS[column].title == "Advantage":
            return record.advantage
        if role == ICON_ROLE and COLUMNS[column].title == "Notes" and record.reward is None:
            return "circle-slash"
        return None

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Ask the engine for another order; columns without one keep what is."""
        sort = COLUMNS[column].sort if 0 <= column < len(COLUMNS) else "recent"
        if sort is not None:
            descending = order == Qt.SortOrder.DescendingOrder
            change = {"sort": sort, "descending": descending}
            self.set_query(self.query.model_copy(update=change))
