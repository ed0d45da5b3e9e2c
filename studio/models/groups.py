"""List of groups: one row per scenario and step, newest first, paged by the engine."""

from collections.abc import Collection
from typing import Any

from PySide6.QtCore import QObject, Qt

from engine.protocol.records.runs import GroupSummary
from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.paged import PAGE, PagedModel
from studio.runtime.tasks import TaskScope
from studio.text import formatting
from studio.theme.item_roles import ICON_ROLE


def group_words(group: GroupSummary) -> str:
    """Describe a group: its step, and the number of unscored trajectories or "no signal"."""
    place = (
        f"Step {group.step}" if group.split == "train" else f"Validation after step {group.step}"
    )
    unscored = sum(reward is None for reward in group.rewards)
    if unscored:
        return f"{place} · {unscored} unscored"
    return place if group.signal or group.split == "validation" else f"{place} · no signal"


class GroupListModel(PagedModel[GroupSummary, TrajectoryQuery]):
    """List of groups. `UserRole` returns the GroupSummary, drawn by the delegate; `ICON_ROLE` the
    icons with tones."""

    _labelled: frozenset[tuple[str, int, int]] = frozenset()

    def __init__(self, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(tasks, TrajectoryQuery(), parent)

    def set_labelled(self, labelled: Collection[tuple[str, int, int]]) -> None:
        """Set which groups are marked as labelled, each given as (split, step, group number)."""
        if len(labelled) != len(self._labelled) or self._labelled != labelled:
            self._labelled = frozenset(labelled)
            if self.total:
                self.dataChanged.emit(self.index(0, 0), self.index(self.total - 1, 0))

    def cell(self, record: GroupSummary, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return record.title
        labelled = (record.split, record.step, record.group) in self._labelled
        if role == Qt.ItemDataRole.AccessibleTextRole:
            mean = formatting.number(record.mean)
            summary = f"{record.title}, {group_words(record)}, mean reward {mean}"
            return f"{summary}, labelled" if labelled else summary
        if role == ICON_ROLE:
            return [
                *([("user-round-check", "human")] if labelled else []),
                *([("circle-slash", "warn")] if None in record.rewards else []),
            ]
        if role == Qt.ItemDataRole.ToolTipRole:
            return record.title
        return None

    def row_of(self, step: int, group: int, split: str = "train") -> int | None:
        """Return the row of a group among the loaded pages; None if it is not loaded."""
        for page, records in self._pages.items():
            for place, record in enumerate(records):
                if (record.split, record.step, record.group) == (split, step, group):
                    return page * PAGE + place
        return None
