"""Home page: active run, recent projects, samples; samples come first without projects."""

import time
from pathlib import Path

from PySide6.QtCore import QPoint, Qt, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QResizeEvent
from PySide6.QtWidgets import QMenu, QWidget

from engine.protocol.records.choices import Sample
from engine.protocol.records.runs import RunSummary
from studio.actions.actions import Actions
from studio.models.projects import COLUMNS, ProjectListModel, ProjectRow, project_rows
from studio.pages.home.samples import SampleGallery
from studio.pages.page import Page, scrolled
from studio.pages.run.strip import cells_of, ramp_ends
from studio.services.session import Session
from studio.store.projects.draft import is_draft
from studio.store.runs.eta import remaining_seconds
from studio.store.runs.status_words import script_of, steps_of
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.run_banner import RunBanner
from studio.widgets.controls.inputs import SearchInput
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.phrase import Span
from studio.widgets.text.text import Text

WIDEST = 1480
ROW_PX, HEAD_PX = 52, 28


class HomePage(Page):
    import_wanted = Signal(str)
    """Emitted with the path of the project into which trajectories are to be imported."""
    writing_wanted = Signal(object)
    """Emitted with the ProjectView of a project whose draft is unfinished."""

    def __init__(
        self, session: Session, actions: Actions, workspace: Path, parent: QWidget | None = None
    ) -> None:
        super().__init__(session, parent)
        self._actions, self._workspace = actions, workspace
        self._model = ProjectListModel(self)
        self._banner = RunBanner()
        self._table = Table("Recent projects", row_px=ROW_PX)
        self._search = SearchInput("Find a project", "Find a project", compact=True)
        self._samples = SampleGallery()
        self._living = ""
        self._build()
        self._wire()
        self._refresh()

    def enter(self) -> None:
        if self.session.connected:
            self.session.refresh()
        self._refresh()
        if self._model.empty:
            self._samples.focus_first()
        else:
            self._table.setFocus()

    def _build(self) -> None:
        content = QWidget()
        content.setMaximumWidth(WIDEST)
        self._column = vbox(parent=content, margins=(24, 16, 24, 24), spacing=0)
        self._projects = self._projects_part()
        add(self._column, self._banner, 8, self._projects, self._samples, STRETCH)
        whole = hbox(parent=self)
        outer = QWidget()
        hbox((content, 1000), STRETCH, parent=outer)
        whole.addWidget(scrolled(outer))

    def _projects_part(self) -> QWidget:
        part = QWidget()
        column = vbox(parent=part, margins=(0, 8, 0, 12), spacing=8)
        head = hbox(Text("Recent projects", "heading"), STRETCH)
        self._search.setFixedWidth(220)
        head.addWidget(self._search)
        column.addLayout(head)
        card = Card(padding=0)
        card.body.addWidget(self._table)
        column.addWidget(card)
        self._table.setModel(self._model)
        self._table.horizontalHeader().setFixedHeight(HEAD_PX)
        self._table.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        kinds = ("strong", "text", "sparkline", "mono", "text", "figure")
        widths = (None, 236, 152, 96, 170, 110)
        for place, (kind, width) in enumerate(zip(kinds, widths, strict=True)):
            self._table.set_column(place, width, kind)
        return part

    def _wire(self) -> None:
        session = self.session
        session.projects_changed.connect(self._refresh)
        session.runs_changed.connect(self._refresh)
        session.run.changed.connect(self._show_banner)
        self._search.search_changed.connect(self._find)
        self._table.row_opened.connect(self._open)
        self._table.clicked.connect(lambda index: self._open(index.row()))
        self._table.customContextMenuRequested.connect(self._menu)
        self._samples.chosen.connect(self._copy_sample)
        self._samples.described.connect(lambda: self._actions.trigger("project.describe"))
        self._samples.imported.connect(lambda: self._actions.trigger("project.environment"))
        self._banner.run_opened.connect(self._open_living)
        self._banner.notice_activated.connect(lambda _: self._open_living())

    @Slot()
    def _refresh(self) -> None:
        session = self.session
        recent = session.settings.current.recent_projects if session.projects else []
        rows = project_rows(session.projects, session.runs.all(), recent)
        self._model.set_rows(rows)
        self._projects.setVisible(bool(rows))
        self._samples.set_samples(session.samples, first_start=not rows)
        self._fit_table()
        self._show_banner()

    def _fit_table(self) -> None:
        shown = max(1, self._model.rowCount())
        self._table.setFixedHeight(HEAD_PX + shown * ROW_PX + 1)

    def _find(self, words: str) -> None:
        self._model.search(words)
        self._fit_table()

    @Slot()
    def _show_banner(self) -> None:
        living = self.session.runs.active()
        self._banner.setVisible(bool(living))
        self._living = living[0].id if living else ""
        if living and self.isVisible():
            self._fill_banner(living[0])

    def _fill_banner(self, run: RunSummary) -> None:
        state = self.session.runs.state(run.id)
        left = remaining_seconds(state, time.time())
        words = f"step {steps_of(run.step, run.steps)}"
        trained_s, idle_s = state.times_at(time.time())
        if trained_s:
            words += f" · trained {formatting.training_time(trained_s, idle_s)}"
        if left is not None:
            words += f" · {formatting.duration(left)} left"
        verb = {
            "pausing": "is pausing",
            "paused": "is paused",
            "stopping": "is stopping",
            "reviewing": "waits for your review",
        }.get(run.state, "is training")
        if run.kind == "outside" and run.state == "running":
            verb = f"is trained by {script_of(run)}"
        if run.kind == "baseline":
            verb, words = "is measuring its baseline", "rollouts before training"
        low, high = ramp_ends(state)
        if run.kind == "evaluation":
            verb, words = "is being evaluated", " vs. ".join(run.contestants)
        where = f" on {run.host}" if run.host else ""
        self._banner.set_run(
            f"{run.project} {verb}{where}", words, cells_of(state), _facts(run), low, high
        )

    def _open(self, row: int) -> None:
        if 0 <= row < len(self._model.rows):
            self._open_row(self._model.rows[row])

    def _open_row(self, row: ProjectRow) -> None:
        if row.missing:
            self._actions.trigger("project.open")
        elif drafts := [v for v in self.session.projects if v.path == row.path and is_draft(v)]:
            self.writing_wanted.emit(drafts[0])
        else:
            self.session.open_project(row.path)

    def _open_living(self) -> None:
        run = self.session.runs.summary(self._living)
        if run is not None:
            self.session.open_run(run)

    def _menu(self, place: QPoint) -> None:
        index = self._table.indexAt(place)
        if not index.isValid():
            return
        row = self._model.rows[index.row()]
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        menu.addAction("Open").triggered.connect(lambda: self._open_row(row))
        bring = menu.addAction("Import trajectories…")
        bring.setEnabled(not (row.missing or row.broken))
        bring.triggered.connect(lambda: self.import_wanted.emit(row.path))
        reveal = menu.addAction("Show in file manager")
        reveal.triggered.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(row.path)))
        forget = menu.addAction("Remove from list (keeps the folder)")
        forget.setEnabled(row.missing)
        forget.triggered.connect(lambda: self._forget(row))
        menu.popup(self._table.viewport().mapToGlobal(place))

    def _forget(self, row: ProjectRow) -> None:
        self.session.settings.forget_project(row.path)
        self._refresh()

    def _copy_sample(self, sample: Sample) -> None:
        """Copy a sample into the first free folder of the workspace."""
        taken = {Path(view.path).name for view in self.session.projects}
        name, number = sample.name.replace("_", "-"), 1
        while name in taken or (self._workspace / name).exists():
            number += 1
            name = f"{sample.name.replace('_', '-')}-{number}"
        self.session.create_project(str(self._workspace / name), sample.name)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._table.setColumnHidden(COLUMNS.index("Engine"), self.width() < 940)
        self._samples.set_columns(4 if self.width() >= 1640 else 3 if self.width() >= 900 else 2)


def _facts(run: RunSummary) -> list[Span]:
    rewards = [reward for reward in run.rewards if reward is not None]
    if not rewards:
        return [Span("first step running")]
    change = rewards[-1] - rewards[0]
    if run.judged:
        rate = formatting.percent(run.win_rate.mean) if run.win_rate else "not measured yet"
        spans = [Span("win rate "), Span(rate, "text", 600)]
    else:
        spans = [Span("reward "), Span(formatting.number(rewards[-1]), "text", 600)]
    if len(rewards) > 1 and not run.judged:
        spans.append(Span(f" {formatting.signed(change)}", "good" if change > 0 else "muted"))
    if run.unscored:
        spans.append(Span(f"   {formatting.count(run.unscored)} unscored", "warn", link="notices"))
    return spans
