"""Table of per-scenario reward statistics, counted and sorted by the engine."""

from typing import Any

from PySide6.QtCore import QObject, Qt

from engine.protocol.records.curves import CurveQuery, ScenarioCurve
from studio.models.columns import Column, ColumnsModel
from studio.runtime.tasks import TaskScope
from studio.text import formatting
from studio.theme.item_roles import TONE_ROLE, VALUE_ROLE

SHARP = 0.1
"""Smallest change of the solve rate that is coloured."""


def change(value: float | None) -> str:
    """Format a change of a rate from 0 to 1: "+12 %", "−3 %"; None gives a dash."""
    if value is None:
        return "–"
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{formatting.percent(abs(value))}"


COLUMNS: tuple[Column[ScenarioCurve], ...] = (
    Column("Scenario", "scenario", lambda r: r.title, right=False),
    Column("Reward by step", None, lambda r: curve_words(r), right=False,
           help="Mean reward at each step; the vertical scale differs per scenario"),
    Column("Mean", "mean", lambda r: formatting.number(r.mean), help="Mean reward over all steps"),
    Column("Early", "early", lambda r: formatting.percent(r.early),
           help="Solve rate in the first third of the scenario's groups"),
    Column("Late", "late", lambda r: formatting.percent(r.late),
           help="Solve rate in the last third of the scenario's groups"),
    Column("Gain", "gain", lambda r: change(r.gain), help="Solve rate: late minus early"),
    Column("Forgotten", "lost", lambda r: formatting.percent(r.lost),
           help="Solve rate: best third minus late"),
    Column("Spread", "spread", lambda r: formatting.number(r.spread),
           help="Mean standard deviation of the rewards within the scenario's groups"),
    Column("Difficulty", "difficulty", lambda r: formatting.number(r.difficulty),
           help="1 minus the smoothed solve rate of the scenario's latest groups"),
    Column("Groups", "visits", lambda r: formatting.count(r.visits),
           help="Number of rollout groups of the scenario"),
    Column("Last step", "last_step", lambda r: str(r.last_step)),
)  # fmt: skip


def curve_words(record: ScenarioCurve) -> str:
    """Return the text of a scenario's sparkline for screen readers."""
    if not record.curve:
        return "no scored trajectory"
    first, last = record.curve[0][1], record.curve[-1][1]
    return f"reward from {formatting.number(first)} to {formatting.number(last)}"


class CurveTableModel(ColumnsModel[ScenarioCurve, CurveQuery]):
    """Table of scenarios. `UserRole` is the record."""

    columns = COLUMNS
    unsorted = "difficulty"

    def __init__(self, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(tasks, CurveQuery(), parent)

    def look(self, record: ScenarioCurve, title: str, role: int) -> Any:
        if role == Qt.ItemDataRole.ToolTipRole and title == "Scenario":
            return record.title
        if role == VALUE_ROLE and title == "Reward by step" and record.curve:
            return [mean for _, mean in record.curve], "plot-1"
        if role == TONE_ROLE and title == "Gain" and abs(record.gain or 0) >= SHARP:
            return "good" if (record.gain or 0) > 0 else "bad"
        if role == TONE_ROLE and title == "Forgotten" and (record.lost or 0) >= SHARP:
            return "warn"
        return None
