"""The Trajectories page: groups; siblings in columns, one in the reader, or the table."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEvent, Qt, QTimer, Slot
from PySide6.QtGui import QFontMetricsF, QKeySequence, QPaintEvent, QResizeEvent, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from engine.protocol.records import GroupSummary, Split, TrajectorySummary
from engine.protocol.requests import Siblings, TrajectoryQuery
from studio import figures
from studio.actions import Actions
from studio.models.groups import GroupListModel
from studio.models.trajectories import TrajectoryTableModel
from studio.pages.page import Page
from studio.pages.trajectories.columns import ColumnsView
from studio.pages.trajectories.group_list import WIDTH, GroupPanel
from studio.pages.trajectories.reader import Reader
from studio.pages.trajectories.reading import shared_words
from studio.session import Session
from studio.theme import theme
from studio.widgets.buttons import IconButton
from studio.widgets.chip import Chip
from studio.widgets.empty_page import EmptyPage
from studio.widgets.group_dots import GroupDots
from studio.widgets.paint import elided, painting
from studio.widgets.phrase import Phrase, Span
from studio.widgets.segmented import Segmented
from studio.widgets.table import Table
from studio.widgets.text import Text

MODES = ("Columns", "Reader", "Table")
REFRESH_MS = 1500
FOLD_PX = 900
TITLE_PX = 300
WIDE_PX = 1240
SPARE_COLUMNS = (2, 5)  # sibling and turns: also in the reader


class TrajectoriesPage(Page):
    """`show_query(query)` opens what a chart, a cell or a notice points at."""

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions = actions
        self._groups = GroupListModel(self.tasks, self)
        self._rows = TrajectoryTableModel(self.tasks, self)
        self._siblings: Siblings | None = None
        self._wanted_index: int | None = None
        self._source = ""
        self._seen = -1
        self._panel = GroupPanel(self._groups)
        self._columns, self._reader, self._table = ColumnsView(), Reader(), Table("Trajectories")
        self._empty = EmptyPage("Nothing to read yet", "", drawing="rows")
        self._build()
        self._wire()
        self._keys()

    def enter(self) -> None:
        self._follow_run()
        self._refresh_timer.start()
        self._panel.list.setFocus()

    def leave(self) -> None:
        self._refresh_timer.stop()

    def show_query(self, query: TrajectoryQuery) -> None:
        """Filter by what was clicked on, and show it."""
        self._panel.set_query(query)
        self._ask(query)
        if query.state != "all":
            self.set_mode(2)

    def set_mode(self, mode: int) -> None:
        self._mode.set_index(mode)
        self._body.setCurrentIndex(mode)
        self._head.setVisible(mode != 2)
        for part in (self._title, self._step, self._place, self._before, self._shown, self._after):
            part.setVisible(mode != 2)
        self._fold()
        if mode == 1:
            self._read()

    # Building

    def _build(self) -> None:
        self._mode = Segmented(MODES, "Show as")
        self._title = Text("", "title")
        self._step, self._place = Chip(), Chip()
        self._words = Text("", "label", 400, "muted", elide=True)
        self._figures = Phrase((), "label")
        self._dots = GroupDots()
        self._shown = Text("", "label", 400, "muted")
        self._before = IconButton("chevron-left", "Siblings before")
        self._after = IconButton("chevron-right", "Siblings after")
        self._head = self._make_head()
        self._body = QStackedWidget()
        for part in (self._columns, self._reader, self._table):
            self._body.addWidget(part)
        self._make_table()
        right = QWidget()
        column = QVBoxLayout(right)
        column.setContentsMargins(16, 12, 16, 12)
        column.setSpacing(8)
        column.addLayout(self._make_top())
        column.addWidget(self._head)
        column.addWidget(self._body, 1)
        self._right = QStackedWidget()
        self._right.addWidget(right)
        self._right.addWidget(self._empty)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(1)
        line.addWidget(self._panel)
        line.addWidget(self._right, 1)
        self._refresh_timer = QTimer(self)
        self._refresh_timer.setInterval(REFRESH_MS)

    def _make_top(self) -> QHBoxLayout:
        top = QHBoxLayout()
        top.setSpacing(8)
        left: list[QWidget] = [self._title, self._step, self._place]
        right: list[QWidget] = [self._mode, self._before, self._shown, self._after]
        for part in left:
            top.addWidget(part)
        top.addStretch(1)
        for part in right:
            top.addWidget(part)
        return top

    def _make_head(self) -> QWidget:
        head = QWidget()
        line = QHBoxLayout(head)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(16)
        line.addWidget(self._words, 1)
        line.addWidget(self._figures)
        self._dots.setFixedWidth(150)
        line.addWidget(self._dots)
        return head

    def _make_table(self) -> None:
        self._table.setModel(self._rows)
        kinds = (
            "strong",
            "figure",
            "figure",
            "mono",
            "advantage",
            "figure",
            "figure",
            "figure",
            "text",
        )
        widths = (None, 60, 72, 72, 84, 60, 72, 72, 190)
        for place, (kind, width) in enumerate(zip(kinds, widths, strict=True)):
            self._table.set_column(place, width, kind)
        self._table.setSortingEnabled(True)
        self._table.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
        self._table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)

    def _wire(self) -> None:
        run = self.session.run
        run.selected.connect(self._follow_run)
        self._refresh_timer.timeout.connect(self._refresh)
        self._panel.query_changed.connect(self._ask)
        self._panel.group_chosen.connect(self._open_group)
        self._groups.loaded.connect(self._show_emptiness)
        self._groups.failed.connect(self.session.problem_raised)
        self._rows.failed.connect(self.session.problem_raised)
        self._mode.chosen.connect(self.set_mode)
        self._before.clicked.connect(lambda: self._columns.page(-1))
        self._after.clicked.connect(lambda: self._columns.page(1))
        self._columns.paged.connect(self._shown.set_words)
        self._columns.opened.connect(lambda _: self.set_mode(1))
        self._columns.focus_changed.connect(lambda _: self._read())
        self._reader.tint_chosen.connect(self._columns.set_tint)
        self._table.row_opened.connect(self._open_row)
        self._empty.action_requested.connect(self._resolve_emptiness)

    def _keys(self) -> None:
        context = Qt.ShortcutContext.WidgetWithChildrenShortcut
        handlers: dict[str, Callable[[], object]] = {
            "/": self._panel.search.setFocus,
            "C": lambda: self.set_mode(0),
            "R": lambda: self.set_mode(1),
            "T": lambda: self.set_mode(2),
            "Left": lambda: self._step_sibling(-1),
            "Right": lambda: self._step_sibling(1),
            "Alt+Up": lambda: self._panel.move(-1),
            "Alt+Down": lambda: self._panel.move(1),
        }
        for place, tint in enumerate(("advantage", "logprob", "mask", "none"), 1):
            handlers[f"Alt+{place}"] = partial(self._reader.set_tint, tint, True)
        for keys, handler in handlers.items():
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(context)
            shortcut.activated.connect(handler)

    # What it shows

    @Slot()
    def _follow_run(self) -> None:
        """Another run was selected, or the page came into view."""
        run_id = self.session.run.run_id
        if not self.isVisible():
            return
        if run_id != self._source:
            self._source, self._siblings = run_id, None
            session = self.session  # its client is another one after the engine was restarted
            self._panel.set_query(TrajectoryQuery())
            for model in (self._groups, self._rows):
                model.set_query(TrajectoryQuery())
            groups = (lambda query: session.client.groups(run_id, query)) if run_id else None
            rows = (lambda query: session.client.trajectories(run_id, query)) if run_id else None
            self._groups.set_source(groups)
            self._rows.set_source(rows)
        self._refresh()
        self._show_emptiness()

    @Slot()
    def _refresh(self) -> None:
        """A living run grows: ask again, but only when something was added."""
        summary = self.session.run.summary
        count = summary.trajectories if summary else 0
        self._panel.set_total(count)
        if count != self._seen:
            self._seen = count
            self._groups.refresh()
            self._rows.refresh()

    @Slot(object)
    def _ask(self, query: TrajectoryQuery) -> None:
        self._groups.set_query(query)
        order = {"sort": self._rows.query.sort, "descending": self._rows.query.descending}
        self._rows.set_query(query.model_copy(update=order))

    @Slot()
    def _show_emptiness(self) -> None:
        nothing = self._groups.asked_once and not self._groups.total
        filtered = self._groups.query != TrajectoryQuery()
        none_yet = not self.session.run.run_id
        self._right.setCurrentIndex(1 if nothing or none_yet else 0)
        if nothing and filtered:
            hidden = self.session.run.state.trajectories
            words = f"The filters hide {figures.plural(hidden, 'trajectory', 'trajectories')}."
            self._empty.set_words("No group matches", words)
            self._empty.set_actions("Clear filters", icon="x")
        elif nothing or none_yet:
            words = "The first arrive with the first step, a minute or two after Train."
            self._empty.set_words("Nothing to read yet", words)
            self._empty.set_actions("Go to the run", icon="activity")

    def _resolve_emptiness(self) -> None:
        if self._groups.query != TrajectoryQuery():
            self._panel.set_query(TrajectoryQuery())
            self._ask(TrajectoryQuery())
        else:
            self._actions.trigger("go.run")

    @Slot(object)
    def _open_group(self, group: GroupSummary) -> None:
        self._fetch(group.split, group.step, group.group)

    def _open_row(self, row: int) -> None:
        record = self._rows.record(row)
        if isinstance(record, TrajectorySummary):
            self._wanted_index = record.index
            self._fetch(record.split, record.step, record.group)
            self.set_mode(1)

    def _fetch(self, split: Split, step: int, group: int) -> None:
        run_id = self.session.run.run_id

        async def ask() -> Siblings:
            return await self.session.client.siblings(run_id, split, step, group)

        self.tasks.run("siblings", ask(), self._show_siblings)

    def _show_siblings(self, siblings: Siblings) -> None:
        self._siblings = siblings
        group, records = siblings.group, siblings.trajectories
        metrics = QFontMetricsF(theme().font("title"))
        self._title.set_words(elided(metrics, group.title, TITLE_PX))
        self._title.setAccessibleName(group.title)
        self._step.set_state(
            f"Step {group.step}" if group.split == "train" else f"Test after step {group.step}"
        )
        self._place.set_state(f"Group {group.group + 1}")
        self._words.set_words(shared_words(records[0]) if records else "")
        self._figures.set_spans(
            [
                Span("mean "),
                Span(figures.number(group.mean), "text", 600, mono=True),
                Span("   spread "),
                Span(figures.number(group.std), "text", 600, mono=True),
            ]
        )
        self._dots.set_rewards(group.rewards)
        self._columns.show_group(group, records)
        if self._wanted_index is not None:
            self._columns.focus_index(self._wanted_index)
            self._wanted_index = None
        self._read()

    def _read(self) -> None:
        """The reader shows the focused sibling, when it is in view."""
        if self._mode.index() == 1 and (record := self._columns.record()) is not None:
            self._reader.show_trajectory(record)

    def _step_sibling(self, by: int) -> None:
        self._columns.move_focus(by)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def _fold(self) -> None:
        """The list goes where there is no room, and where the reader has its outline."""
        reading = self._mode.index() == 1
        self._panel.setVisible(self.width() >= FOLD_PX and not reading)
        for column in SPARE_COLUMNS:
            self._table.setColumnHidden(column, self.width() < WIDE_PX)
        self.update()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with painting(self) as painter:
            if self._panel.isVisible():
                painter.fillRect(WIDTH, 0, 1, self.height(), theme().color("border"))
