"""Comparison of runs: one legend above charts, validations and settings."""

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.run_table import RunComparison
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.run_table import CompareRuns
from studio.pages.runs.compare.charts import (
    VALIDATION,
    WIN_RATE,
    OverlaidRun,
    OverlayChart,
    ValidationChart,
    metrics_of,
)
from studio.pages.runs.compare.legend import RunLegend
from studio.pages.runs.compare.tables import SettingModel
from studio.pages.runs.compare.validation import ValidationView
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.runs.axes import AXES
from studio.store.runs.chosen_runs import ChosenRuns
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.charts.grid.chart_grid import ChartGrid, Section
from studio.widgets.charts.grid.deferred_fill import DeferredFill
from studio.widgets.charts.grid.smoothing_slider import SmoothingSlider
from studio.widgets.charts.grid.zoom_button import ZoomButton
from studio.widgets.charts.link import ChartLink
from studio.widgets.controls.buttons import IconButton
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

REDRAW_MS = 250
"""Charts follow active runs so often."""
CARDS_AT_ONCE = 2
PARTS = ("Charts", "Validation", "Settings")
ATS: tuple[Literal["best", "last"], ...] = ("best", "last")


class CompareView(QWidget):
    """Comparison: `show_runs(runs)`. Emits `left` when the user returns to the table."""

    left = Signal()

    def __init__(
        self, session: Session, tasks: TaskScope, chosen: ChosenRuns, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._tasks, self._chosen = session, tasks, chosen
        self._runs: list[RunSummary] = []
        self._charts: dict[str, OverlayChart | ValidationChart] = {}
        self._sections: tuple[tuple[str, ...], ...] = ()
        self._overlaid: list[OverlaidRun] = []
        self._unwanted: set[str] = set()
        """Metrics whose charts were hidden."""
        self._allowed = CARDS_AT_ONCE
        """Number of charts that may have been made by now."""
        self.link = ChartLink(self)
        self._title = Text("", "heading", 600)
        self._back = IconButton("arrow-left", "Back to the table of runs", size=28)
        self._part = Segmented(PARTS, "Section of the comparison")
        self._axis = Segmented(["Step", "Time", "Tokens"], "x axis of the charts")
        self._at = Segmented(["Best", "Last"], "Compared validation")
        self._slider = SmoothingSlider(self.link)
        self._legend = RunLegend()
        self._grid = ChartGrid()
        self._validation = ValidationView()
        self._settings = SettingModel()
        self._settings_card = Card("Settings", " ", padding=0)
        self._table = Table("Settings that differ", row_px=28)
        self._stack = QStackedWidget()
        self._filling: DeferredFill[OverlayChart | ValidationChart] = DeferredFill(self._fill, self)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(REDRAW_MS)
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.setInterval(20)
        self._build()
        self._wire()

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Compare these runs with the first of them."""
        self._runs = list(runs)
        self.link.set_smoothing(self._session.settings.current.smoothing)
        self._title.set_words(f"{formatting.plural(len(runs), 'run')} compared")
        self._legend.set_runs(
            [(run.id, run.name, self._chosen.token(run.id) or "muted") for run in runs]
        )
        for chart in self._charts.values():
            chart.card.deleteLater()
        self.link.forget_ends()
        self.link.set_zoom(None)
        self._charts, self._sections, self._allowed = {}, (), CARDS_AT_ONCE
        self._grid.set_sections([Section("", "", [])])
        for run in runs:
            if not self._session.runs.known(run.id):
                self._session.runs.put(run)
            self._session.following.begin(run.id)
        self._validation.show_words("Comparing the validations …")
        self._settings.show([], [])
        self._draw()
        self._compare()

    def focus_first(self) -> None:
        self._part.setFocus()

    def close_full(self) -> bool:
        """Restore the grid if a chart fills the page. Returns whether one did."""
        was_full = self._grid.full is not None
        self._grid.show_full(None)
        return was_full

    def _build(self) -> None:
        self._zoom = ZoomButton(self.link)
        self._tools = hbox(self._zoom, self._axis, self._slider, self._at, spacing=12)
        head = hbox(self._back, 4, self._title, 12, self._part, STRETCH, self._tools, spacing=0)
        self._table.setModel(self._settings)
        self._settings_card.body.addWidget(self._table)
        for part in (self._grid, self._validation, self._settings_card):
            self._stack.addWidget(part)
        column = vbox(parent=self, margins=(16, 12, 16, 16), spacing=12)
        add(column, head, self._legend, (self._stack, 1))
        self._show_part(0)

    def _wire(self) -> None:
        self._back.clicked.connect(self.left)
        self._part.chosen.connect(self._show_part)
        self._axis.chosen.connect(self._set_axis)
        self._at.chosen.connect(lambda _: self._compare())
        self._legend.hidden_changed.connect(self._fill_all)
        self.link.smoothing_changed.connect(self._keep_smoothing)
        self._wait.timeout.connect(self._draw)
        self._later.timeout.connect(self._draw)
        self._session.feed.run_changed.connect(self._run_changed)

    @Slot(int)
    def _show_part(self, part: int) -> None:
        self._stack.setCurrentIndex(part)
        for tool, shown in ((self._axis, 0), (self._slider, 0), (self._at, 1)):
            tool.setVisible(part == shown)

    def _keep_smoothing(self) -> None:
        if self.isVisible():
            self._session.settings.update(smoothing=round(self.link.smoothing, 2))

    @Slot(int)
    def _set_axis(self, index: int) -> None:
        self.link.set_axis(AXES[index])
        self._fill_all()

    @Slot(str)
    def _run_changed(self, run_id: str) -> None:
        shown = self.isVisible() and any(run.id == run_id for run in self._runs)
        if shown and not self._wait.isActive():
            self._wait.start()

    def _placed(self) -> list[OverlaidRun]:
        """Return the runs on the chosen x axis."""
        axis, hidden = AXES[self._axis.index()], self._legend.hidden()
        return [
            OverlaidRun.on_axis(
                self._session.runs.state(run.id),
                run.name,
                self._chosen.token(run.id) or "muted",
                axis,
                run.id in hidden,
            )
            for run in self._runs
        ]

    @Slot()
    def _draw(self) -> None:
        """Add charts for metrics that have appeared, and fill all charts."""
        runs = self._placed()
        main, others = metrics_of(runs)
        main, others = ([n for n in names if n not in self._unwanted] for names in (main, others))
        first = [WIN_RATE] if any(run.state.win_rates for run in runs) else []
        if not first or any(v.reward for run in runs for v in run.state.validations):
            first.append(VALIDATION)
        first = [name for name in first if name not in self._unwanted]
        shown = [*first, *main]
        sections = (
            tuple(shown[: self._allowed]),
            tuple(others[: max(0, self._allowed - len(shown))]),
        )
        if sections != self._sections:
            self._sections = sections
            self._grid.set_sections(
                [
                    Section(title, words, [self._chart(name).card for name in names])
                    for title, words, names in (
                        ("", "", sections[0]),
                        ("All metrics", "all other metrics of these runs", sections[1]),
                    )
                    if names or not title
                ]
            )
        if self._allowed < len(shown) + len(others):  # making all cards at once would take long
            self._allowed += CARDS_AT_ONCE
            self._later.start()
        self._fill_all()

    def _chart(self, name: str) -> OverlayChart | ValidationChart:
        if name not in self._charts:
            made = (
                ValidationChart(self.link, rates=name == WIN_RATE)
                if name in (VALIDATION, WIN_RATE)
                else OverlayChart(name, self.link)
            )
            card = made.card
            card.full_page_requested.connect(lambda: self._grid.show_full(card))
            card.dragged.connect(lambda at: self._grid.follow_drag(card, at))
            card.hide_requested.connect(lambda: self._hide(name))
            card.save_failed.connect(self._session.notice)
            self._charts[name] = made
        return self._charts[name]

    def _hide(self, name: str) -> None:
        self._grid.show_full(None)
        self._unwanted.add(name)
        self._draw()

    def _fill_all(self) -> None:
        self._overlaid = self._placed()
        self._filling.start([self._charts[name] for names in self._sections for name in names])

    def _fill(self, chart: OverlayChart | ValidationChart) -> None:
        if self._charts.get(chart.name) is chart:
            chart.fill(self._overlaid)

    def _compare(self) -> None:
        ids = [run.id for run in self._runs]
        request = CompareRuns(runs=ids, at=ATS[self._at.index()])

        async def compare() -> RunComparison:
            return await self._session.client.compare_runs(request)

        self._tasks.run("compare runs", compare(), self._show_comparison, self._failed)

    def _show_comparison(self, found: RunComparison) -> None:
        self._validation.show_comparison(found, self._chosen)
        names = [one.name for one in found.runs]
        self._settings.show(names, found.settings)
        assert self._settings_card.header is not None
        self._settings_card.header.set_words(
            f"{formatting.plural(len(found.settings), 'setting')} differ; {found.equal} are equal"
            if found.settings
            else f"All {found.equal} settings are equal"
        )
        for place in range(len(names) + 1):
            self._table.set_column(place, 150 if place else None, "mono" if place else "text")

    def _failed(self, problem: Problem) -> None:
        self._validation.show_words(f"{problem.message} {problem.hint}".strip())
