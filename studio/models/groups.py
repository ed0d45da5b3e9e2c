"""The list of groups: one row per scenario and step, newest first, paged by the engine."""

from typing import Any

from PySide6.QtCore import Qt

from engine.protocol.records import GroupSummary
from studio import figures
from studio.models.paged import PagedModel


def group_words(group: GroupSummary) -> str:
    """Step, and what is wrong with the group."""
    place = f"Step {group.step}" if group.split == "train" else f"Test after step {group.step}"
    unscored = sum(reward is None for reward in group.rewards)
    if unscored:
        return f"{place} · {unscored} unscored"
    return place if group.signal or group.split == "validation" else f"{place} · no signal"


class GroupListModel(PagedModel[GroupSummary]):
    """`UserRole` is the record; the delegate draws the dots."""

    def cell(self, record: GroupSummary, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return record.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            mean = figures.number(record.mean)
            return f"{record.title}, {group_words(record)}, mean reward {mean}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return record.title
        return None

    def row_of(self, step: int, group: int, split: str = "train") -> int | None:
        """The row of a group among those already here."""
        for page, records in self._pages.items():
            for place, record in enumerate(records):
                if (record.split, record.step, record.group) == (split, step, group):
                    return page * 100 + place
        return None
