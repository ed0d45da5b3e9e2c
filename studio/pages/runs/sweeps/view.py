"""View of the sweeps of a project: the chosen one with its charts and trials."""

import uuid
from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QMenu, QSizePolicy, QStackedWidget, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.sweeps import SweepPlan, SweepSummary, SweepView
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep
from studio.pages.runs.sweeps.form import SweepSheet
from studio.pages.runs.sweeps.parallel import ParallelCoordinates
from studio.pages.runs.sweeps.rows import TrialModel, result_words
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.text import formatting
from studio.text.settings import setting_words, short_key
from studio.widgets.cards.card import Card
from studio.widgets.cards.empty_page import EmptyPage
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

REFRESH_MS = 2000
WORKING = ("waiting", "running")
STATES = {
    "waiting": "Waiting for the device",
    "running": "Running",
    "paused": "Paused",
    "stopped": "Stopped",
    "finished": "Finished",
}
ROW_PX = 30
KINDS = {"95 %": "interval", "Result": "mono", "State": "text", "Trial": "text"}


class ImportanceBars(QWidget):
    """Share of the results' variation that each setting explains: `set_shares({key: share})`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shares: list[tuple[str, float]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        self._shares = sorted(shares.items(), key=lambda item: -item[1])
        words = [f"{short_key(key)} {formatting.percent(share)}" for key, share in self._shares]
        self.setAccessibleName(f"Importance: {', '.join(words)}")
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, max(1, len(self._shares)) * ROW_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            for place, (key, share) in enumerate(self._shares):
                top = place * ROW_PX
                name = QRectF(0, top, self.width() - 48, 18)
                paint.text(painter, name, short_key(key), "text", "caption", 500)
                value = QRectF(self.width() - 48, top, 48, 18)
                paint.text(
                    painter, value, formatting.percent(share), "muted", "caption",
                    align=paint.RIGHT,
                )  # fmt: skip
                rail = QRectF(0, top + 19, self.width(), 4)
                paint.box(painter, rail, "chip", None, 2)
                done = QRectF(0, top + 19, max(4.0, self.width() * share), 4)
                paint.box(painter, done, "plot-1", None, 2)


class SweepsView(QWidget):
    """Sweeps of the open project. `run_wanted(run id)` is emitted to open the run of a trial,
    `compare_wanted(run ids)` to compare the runs of the best trials."""

    run_wanted = Signal(str)
    compare_wanted = Signal(object)

    def __init__(
        self, session: Session, tasks: TaskScope, switch: QWidget, parent: QWidget | None = None
    ) -> None:
        """`switch` is the control that leads back to the table of runs."""
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self._all: list[SweepSummary] = []
        self._view: SweepView | None = None
        self._wanted = ""
        self._name = Button("Sweep", "quiet", menu_arrow=True)
        self._state = Text("", "label", 500, "muted", elide=True)
        self._pause = Button("Pause", "quiet", icon="pause")
        self._stop = Button("Stop", "quiet", icon="square")
        self._compare = Button("Compare the best", "quiet", icon="git-compare-arrows")
        self._new = Button("New sweep", "primary", icon="plus")
        self._facts = Text("", "label", 400, "muted", wrap=True)
        self._lines = ParallelCoordinates()
        self._best = Text("", "label", 400, wrap=True, selectable=True)
        self._importance = ImportanceBars()
        self._unimportant = Text(
            "Appears when several settings vary and enough trials have finished.",
            "caption",
            tone="muted",
            wrap=True,
        )
        self._model = TrialModel()
        self._table = Table("Trials", row_px=32)
        self._empty = EmptyPage(
            "No sweep yet",
            "A sweep trains runs with different values of some settings and compares their "
            "validation results.",
            drawing="rows",
        )
        self._sheet = SweepSheet(self)
        self._stack = QStackedWidget()
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._build(switch)
        self._wire()

    def enter(self) -> None:
        """Load the sweeps of the open project."""
        self._timer.start()
        self._look()

    def leave(self) -> None:
        self._timer.stop()

    def forget(self) -> None:
        """Empty the view: another project was opened."""
        self._all, self._view, self._wanted = [], None, ""
        self._show()

    def open_form(self) -> None:
        """Open the form of a new sweep."""
        view = self._session.project.view
        if view is not None and view.config is not None:
            self._sheet.show_project(view.config)

    def _build(self, switch: QWidget) -> None:
        head = hbox(
            switch, 8, self._name, (self._state, 1), self._compare, self._pause, self._stop,
            self._new, spacing=6,
        )  # fmt: skip
        chart = Card("Trials by setting and result", padding=8)
        chart.body.addWidget(self._lines)
        side = QWidget()
        side.setFixedWidth(276)
        best, important = Card("Best so far"), Card("Importance")
        best.body.addWidget(self._best)
        add(important.body, self._importance, self._unimportant)
        vbox(best, important, STRETCH, parent=side, spacing=12)
        upper = QWidget()
        hbox((chart, 1), side, parent=upper, spacing=12)
        self._table.setModel(self._model)
        trials = Card(padding=0)
        trials.body.addWidget(self._table)
        body = QWidget()
        vbox(self._facts, (upper, 5), (trials, 4), parent=body, spacing=12)
        for part in (self._empty, body):
            self._stack.addWidget(part)
        vbox(head, (self._stack, 1), parent=self, margins=(16, 12, 16, 16), spacing=12)
        self._empty.set_actions("New sweep", icon="plus")

    def _wire(self) -> None:
        self._timer.timeout.connect(self._look)
        self._name.clicked.connect(self._menu)
        self._new.clicked.connect(self.open_form)
        self._empty.action_requested.connect(self.open_form)
        self._pause.clicked.connect(self._pause_or_resume)
        self._stop.clicked.connect(lambda: self._act("stop"))
        self._compare.clicked.connect(self._compare_best)
        self._table.row_opened.connect(self._open)
        self._table.selectionModel().currentRowChanged.connect(self._selected)
        self._lines.trial_chosen.connect(self._choose)
        self._sheet.plan_wanted.connect(self._plan)
        self._sheet.start_wanted.connect(self._start)

    # The sweep

    @Slot()
    def _look(self) -> None:
        """Load the list of sweeps and the chosen one, unless that is going on."""
        if self._tasks.busy("sweeps") or not self._session.connected:
            return
        path, wanted = self._session.project.path, self._wanted

        async def read() -> tuple[list[SweepSummary], SweepView | None]:
            client = self._session.client
            listed = await client.sweeps(path)
            ids = [sweep.id for sweep in listed]
            chosen = wanted if wanted in ids else next(iter(ids), "")
            return listed, await client.sweep(chosen) if chosen else None

        def show(found: tuple[list[SweepSummary], SweepView | None]) -> None:
            if path == self._session.project.path and wanted == self._wanted:
                changed = found[1] != self._view
                self._all, self._view = found
                if changed or self._stack.currentIndex() != int(self._view is not None):
                    self._show()

        self._tasks.run("sweeps", read(), show, self._failed)

    def _failed(self, problem: Problem) -> None:
        """Report why the sweeps cannot be read, once: they are read again on the next visit."""
        self._timer.stop()
        self._session.problem_raised.emit(problem)

    def _show(self) -> None:
        view = self._view
        self._stack.setCurrentIndex(int(view is not None))
        for tool in (self._name, self._state, self._pause, self._stop, self._compare, self._new):
            tool.setVisible(view is not None)
        if view is None:
            return
        self._name.set_words(view.name)
        problem = f" · {view.problem.message}" if view.problem else ""
        self._state.set_words(f"{STATES[view.state]}{problem}")
        self._state.set_tone("warn" if view.problem else "muted")
        self._pause.set_words("Pause" if view.state in WORKING else "Resume")
        self._pause.set_icon("pause" if view.state in WORKING else "play")
        self._pause.setEnabled(view.state != "finished")
        self._stop.setEnabled(view.state in WORKING)
        self._facts.set_words(facts(view))
        self._lines.show_sweep(view)
        self._best.set_words(best_words(view))
        self._importance.set_shares(view.importance)
        self._importance.setVisible(bool(view.importance))
        self._unimportant.setVisible(not view.importance)
        chosen = self._table.currentIndex().row()
        number = self._model.rows[chosen].number if 0 <= chosen < len(self._model.rows) else 0
        self._model.show(view)
        self._compare.setEnabled(len(self._best_runs()) > 1)
        kinds = {"Trial": 62, "State": 120, "95 %": 150, "Steps": 92}
        for place, title in enumerate(self._model.titles):
            kind = KINDS.get(title, "figure")
            width = kinds.get(title, 110)
            self._table.set_column(place, None if title == "State" else width, kind)
        if number:
            self._choose(number)

    def _menu(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for sweep in self._all:
            action = menu.addAction(f"{sweep.name} · {STATES[sweep.state].lower()}")
            action.triggered.connect(lambda _=False, one=sweep.id: self._want(one))
        menu.popup(self._name.mapToGlobal(QPoint(0, self._name.height())))

    def _want(self, sweep_id: str) -> None:
        self._wanted = sweep_id
        self._tasks.cancel("sweeps")
        self._look()

    @Slot(int)
    def _choose(self, number: int) -> None:
        row = next((r for r, one in enumerate(self._model.rows) if one.number == number), -1)
        if row >= 0:
            self._table.setCurrentIndex(self._model.index(row, 0))

    @Slot()
    def _selected(self) -> None:
        row = self._table.currentIndex().row()
        known = 0 <= row < len(self._model.rows)
        self._lines.choose(self._model.rows[row].number if known else 0)

    @Slot(int)
    def _open(self, row: int) -> None:
        runs = [run.run_id for run in self._model.rows[row].runs if run.run_id]
        if len(runs) > 1:
            self.compare_wanted.emit(runs)
        elif runs:
            self.run_wanted.emit(runs[0])

    def _best_runs(self) -> list[str]:
        """Return the first run of each of the best trials, at most eight."""
        trials = [trial for trial in self._model.rows if trial.result and trial.runs[0].run_id]
        return [trial.runs[0].run_id for trial in trials[:8]]

    def _compare_best(self) -> None:
        self.compare_wanted.emit(self._best_runs())

    # Commands

    def _pause_or_resume(self) -> None:
        working = self._view is not None and self._view.state in WORKING
        self._act("pause" if working else "resume")

    def _act(self, action: str) -> None:
        if self._view is None:
            return
        sweep_id, request = self._view.id, ActOnSweep.model_validate({"action": action})

        async def act() -> SweepView:
            if action == "resume":
                await self._lend_keys()
            return await self._session.client.act_on_sweep(sweep_id, request)

        self._tasks.run("sweep", act(), lambda _: self._want(sweep_id))

    def _request(self, overrides: dict[str, Any]) -> StartSweep:
        session, view = self._session, self._session.project.view
        chosen = session.clusters.override(session.cluster, view.config if view else None)
        return StartSweep(
            project=session.project.path, overrides={**chosen, **overrides}, key=uuid.uuid4().hex
        )

    async def _lend_keys(self) -> None:
        await self._session.lend_keys()
        await self._session.clusters.prepare(self._session.cluster)

    @Slot(object)
    def _plan(self, overrides: dict[str, Any]) -> None:
        request = self._request(overrides)

        async def plan() -> SweepPlan:
            return await self._session.client.plan_sweep(request)

        self._tasks.run("plan sweep", plan(), self._sheet.show_plan, self._sheet.refuse)

    @Slot(object)
    def _start(self, overrides: dict[str, Any]) -> None:
        request = self._request(overrides)

        async def start() -> SweepView:
            await self._lend_keys()
            return await self._session.client.start_sweep(request)

        def started(view: SweepView) -> None:
            self._sheet.close_started()
            self._want(view.id)

        def failed(problem: Problem) -> None:
            self._sheet.refuse(problem)

        self._tasks.run("start sweep", start(), started, failed)


def facts(view: SweepView) -> str:
    """Describe how far a sweep is, and what it has cost."""
    parts = [
        f"{view.trials_ended} of {formatting.plural(view.trials_planned, 'trial')}",
        f"{formatting.count(view.steps_done)} of {formatting.plural(view.steps_planned, 'step')}",
    ]
    if view.steps_saved:
        share = formatting.percent(view.steps_saved / view.steps_planned)
        parts.append(f"pruning saved {formatting.plural(view.steps_saved, 'step')} ({share})")
    parts.append(formatting.duration(view.seconds))
    if view.cost_usd:
        parts.append(formatting.money(view.cost_usd))
    return " · ".join(parts)


def best_words(view: SweepView) -> str:
    """Describe the best trial: values and result with its interval."""
    trial = next((one for one in view.trials if one.number == view.best), None)
    if trial is None or trial.result is None:
        return "No trial has finished yet."
    words = formatting.percent if view.metric == "validation/win_rate" else formatting.number
    values = "\n".join(f"{key} = {setting_words(value)}" for key, value in trial.values.items())
    ends = f"{words(trial.result.low)} to {words(trial.result.high)}"
    return f"Trial {trial.number}: {result_words(view, trial)} ({ends})\n{values}"
