"""Table of the trials of a sweep, best first."""

import math
from typing import Any

from PySide6.QtCore import Qt

from engine.protocol.records.sweeps import SweepTrial, SweepView
from studio.models.headers import LEFT, RIGHT, head
from studio.models.rows import RowsModel
from studio.text import formatting
from studio.text.settings import setting_words, short_key
from studio.theme.item_roles import ICON_ROLE, TONE_ROLE, VALUE_ROLE
from studio.widgets.tables.interval_axis import Interval

STATES = {
    "waiting": ("Waiting", "faint", "clock"),
    "running": ("Running", "accent", "activity"),
    "finished": ("Finished", "good", "check"),
    "pruned": ("Pruned", "muted", "scissors"),
    "failed": ("Failed", "bad", "octagon-alert"),
}


def result_words(view: SweepView, trial: SweepTrial) -> str:
    """Format the result of a trial: a win rate or a mean reward."""
    if trial.result is None:
        return formatting.ABSENT
    is_rate = view.metric == "validation/win_rate"
    return (formatting.percent if is_rate else formatting.number)(trial.result.mean)


def ordered(trials: list[SweepTrial]) -> list[SweepTrial]:
    """Return the trials by result, finished ones before pruned ones, those without a result
    last."""
    place = {"finished": 0, "running": 1, "pruned": 2, "failed": 3, "waiting": 4}
    return sorted(
        trials,
        key=lambda t: (place[t.state], -(t.result.mean if t.result else -math.inf), t.number),
    )


class TrialModel(RowsModel[SweepTrial]):
    """Table of trials: number, state, values, result with its interval, steps."""

    def __init__(self) -> None:
        super().__init__()
        self.view: SweepView | None = None
        self.keys: list[str] = []

    def show(self, view: SweepView) -> None:
        """Replace all rows by the trials of a sweep."""
        self.beginResetModel()
        self.view, self.keys, self.rows = view, list(view.space), ordered(view.trials)
        self.endResetModel()

    @property
    def titles(self) -> list[str]:
        return ["Trial", "State", *map(short_key, self.keys), "Result", "95 %", "Steps"]

    def columnCount(self, parent: Any = None) -> int:
        return len(self.titles)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        right = [place for place in range(len(self.titles)) if self._is_right(place)]
        return head(self.titles, right, section, orientation, role)

    def _is_right(self, column: int) -> bool:
        return self.titles[column] not in ("Trial", "State", "95 %")

    def cell(self, row: SweepTrial, column: int, role: int) -> Any:
        title, words = self.titles[column], STATES[row.state]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if self._is_right(column) else LEFT
        if role == Qt.ItemDataRole.ToolTipRole and row.problem:
            return str(row.problem)
        if title == "State":
            return {
                Qt.ItemDataRole.DisplayRole: words[0], TONE_ROLE: words[1], ICON_ROLE: words[2],
            }.get(role)  # fmt: skip
        if title == "95 %" and role == VALUE_ROLE:
            return self._interval(row)
        return self._words(row, column) if role == Qt.ItemDataRole.DisplayRole else None

    def _words(self, row: SweepTrial, column: int) -> str:
        title = self.titles[column]
        if 2 <= column < 2 + len(self.keys):
            return setting_words(row.values.get(self.keys[column - 2]))
        if title == "Trial":
            return str(row.number)
        if title == "Result":
            assert self.view is not None
            return result_words(self.view, row)
        if title == "Steps":
            done, planned = (sum(getattr(r, n) for r in row.runs) for n in ("step", "steps"))
            return f"{done} of {planned}"
        return ""

    def _interval(self, row: SweepTrial) -> tuple[Interval, float, float] | None:
        results = [trial.result for trial in self.rows if trial.result]
        if row.result is None:
            return None
        low, high = min(r.low for r in results), max(r.high for r in results)
        assert self.view is not None
        token = "accent" if row.number == self.view.best else "muted"
        return Interval(row.result.mean, row.result.low, row.result.high, token), low, high
