"""Run strip: facts of the run, legend, and one cell per step."""

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from studio.models.run import RunModel
from studio.store.runs.axes import AXES
from studio.store.runs.backend_labels import programs
from studio.store.runs.parts import StepRecord
from studio.store.runs.series import Series
from studio.store.runs.state import HELD_OUT, RunState
from studio.store.runs.status_words import steps_of
from studio.text import formatting
from studio.widgets.charts.link import ChartLink
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import vbox
from studio.widgets.steps.step_strip import StepStrip
from studio.widgets.steps.strip_layout import StepCell
from studio.widgets.steps.strip_legend import StripLegend
from studio.widgets.text.phrase import Phrase, Span

ENOUGH_STEPS = 20


def cells_of(state: RunState) -> list[StepCell]:
    """Return one cell per step, in order: finished, skipped, running, stopped and planned ones."""
    return StepCells().of(state)


class StepCells:
    """Cache of step cells, so that a new step creates a single new cell."""

    def __init__(self) -> None:
        self._records: list[StepRecord] = []
        self._cells: list[StepCell] = []
        self._planned: list[StepCell] = []

    def of(self, state: RunState) -> list[StepCell]:
        """Return all cells of a run like `cells_of`, reusing unchanged ones."""
        self._follow(state.steps, measure_of(state))
        last = state.steps[-1].step if state.steps else 0
        first_planned, between = last + 1, []
        if state.active and state.step > last:
            between = [StepCell(state.step, "running")]
            first_planned = state.step + 1
        elif state.status == "failed" and last < state.planned:
            between = [StepCell(last + 1, "stopped", words=state.reason)]
            first_planned = last + 2
        for step in range(len(self._planned) + 1, state.planned + 1):
            self._planned.append(StepCell(step, "planned"))
        return [*self._cells, *between, *self._planned[first_planned - 1 : state.planned]]

    def _follow(self, records: Sequence[StepRecord], measure: str) -> None:
        known = len(self._records)
        if known > len(records) or (known and self._records[-1] is not records[known - 1]):
            known = 0  # another run, or one that was rolled back
        self._records[known:] = records[known:]
        self._cells[known:] = [_cell(record, measure) for record in records[known:]]


def _cell(record: StepRecord, measure: str) -> StepCell:
    life = "skipped" if record.skipped else "done"
    return StepCell(record.step, life, record.metrics.get(measure), record.reason)


def measure_of(state: RunState) -> str:
    """Return the metric shown in the cells: the reward, or the loss of an SFT run."""
    return "loss" if state.spec is not None and state.spec.kind == "sft" else "reward/mean"


def ramp_ends(state: RunState) -> tuple[float, float]:
    """Return the metric values at the ends of the colour ramp: percentiles 2 and 98. With few
    steps, minimum and maximum, widened to include 0 to 1."""
    series = state.series.get(measure_of(state))
    if series is None or not len(series):
        return 0.0, 1.0
    if len(series) < ENOUGH_STEPS:
        return min(0.0, min(series.ys)), max(1.0, max(series.ys))
    low, high = np.percentile(np.array(series.ys), (2, 98))
    return (float(low), float(high)) if high - low > 0.02 else (float(low) - 0.1, float(high) + 0.1)


class StripBlock(QWidget):
    """Strip with facts, legend, axis switch and cells."""

    step_opened = Signal(int)
    unscored_wanted = Signal()
    axis_chosen = Signal(str)
    branch_wanted = Signal(int)

    def __init__(self, link: ChartLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._facts = Phrase((), "body")
        self._legend = StripLegend()
        self._axis = Segmented(["Step", "Time", "Tokens"], "x axis of the charts")
        self.strip = StepStrip()
        self._cells = StepCells()
        self._tells_rewards = True
        self._build()
        self._axis.chosen.connect(lambda index: self.axis_chosen.emit(AXES[index]))
        self._facts.link_activated.connect(lambda _: self.unscored_wanted.emit())
        self.strip.step_hovered.connect(link.set_hovered)
        self.strip.step_chosen.connect(link.set_chosen)
        self.strip.step_opened.connect(self.step_opened)
        self.strip.branch_wanted.connect(self.branch_wanted)
        link.crosshair_moved.connect(self.strip.set_crosshair)

    def show_run(self, run: RunModel) -> None:
        state = run.state
        low, high = ramp_ends(state)
        self._tells_rewards = measure_of(state) == "reward/mean"
        self.strip.set_measure("reward" if self._tells_rewards else "loss", not self._tells_rewards)
        self.strip.set_steps(self._cells.of(state), low, high)
        self.strip.set_marks(
            validations=[
                *(record.step for record in state.validations),
                *(int(step) for step in state.series.get(HELD_OUT, Series()).xs),
            ],
            checkpoints=[kept.step for kept in state.checkpoints],
            branches=[*state.branches, *_own_start(run)],
        )
        self._legend.set_range(low, high)
        self.show_facts(run)

    def show_facts(self, run: RunModel) -> None:
        self._facts.set_spans(_facts(run.state))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def add_tool(self, widget: QWidget) -> None:
        """Insert a widget before the axis switch."""
        self._line.insertWidget(self._line.count() - 1, widget)

    def _fit(self) -> None:
        """Show the legend if there is room; tooltips have the same text."""
        items = [self._line.itemAt(place) for place in range(self._line.count())]
        widgets = [widget for item in items if item and (widget := item.widget())]
        needed = sum(widget.sizeHint().width() + self._line.spacing() for widget in widgets)
        self._legend.setVisible(self._tells_rewards and needed <= self.width())

    def _build(self) -> None:
        self._line = QHBoxLayout()
        line = self._line
        line.setSpacing(16)
        line.addWidget(self._facts, 1)
        line.addWidget(self._legend)
        line.addWidget(self._axis)
        vbox(line, self.strip, parent=self, spacing=4)


def _own_start(run: RunModel) -> list[int]:
    """Return the start step of a branch in a list; empty for other runs."""
    parent = run.summary.parent if run.summary else None
    return [parent.begins] if parent and parent.begins else []


def _facts(state: RunState) -> list[Span]:
    supervised = measure_of(state) == "loss"
    unit = "Update" if supervised else "Step"
    spans = [Span(f"{unit} {steps_of(state.done, state.planned)}", "text", 600), Span("   ")]
    if supervised:
        return spans + _learned(state)
    reward = state.series.get("reward/mean")
    facts: list[list[Span]] = []
    if reward is not None and reward.last is not None:
        facts.append([Span("reward "), Span(formatting.number(reward.last), "text", 600)])
    tested = [record.reward for record in state.validations if record.reward]
    if state.win_rate:
        rate = formatting.percent(state.win_rate.mean)
        facts.append([Span("win rate "), Span(rate, "text", 600)])
    elif tested:
        facts.append([Span("validation "), Span(formatting.number(tested[-1].mean), "text", 600)])
    facts.append([Span(f"{formatting.count(state.trajectories)} trajectories")])
    if state.unscored:
        words = f"{formatting.count(state.unscored)} unscored"
        facts.append([Span(words, "warn", link="unscored")])
    found = programs(state)
    if found is not None and not found.alike:
        words = f"sampler in {found.sampler.rpartition(', ')[2]}, trainer in {state.dtype}"
        facts.append([Span(words, "warn")])
    for place, fact in enumerate(facts):
        spans += ([Span(" · ")] if place else []) + fact
    return spans


def _learned(state: RunState) -> list[Span]:
    """Return the facts of an SFT run for the strip."""
    loss, held_out = state.series.get("loss"), state.series.get(HELD_OUT)
    plan = state.spec.supervised if state.spec else None
    spans = []
    if loss is not None and loss.last is not None:
        spans += [Span("loss "), Span(formatting.number(loss.last), "text", 600), Span(" · ")]
    if held_out is not None and held_out.last is not None:
        spans += [
            Span("held out "),
            Span(formatting.number(held_out.last), "text", 600),
            Span(" · "),
        ]
    if plan is not None:
        spans.append(Span(formatting.plural(plan.train.examples, "demonstration")))
        if plan.skipped:
            left = f"{formatting.plural(plan.skipped, 'invalid line')} skipped"
            spans += [Span(" · "), Span(left, "warn")]
    return spans
