"""Trajectories page: group list; columns, reader, comparison, tables."""

from PySide6.QtCore import QEvent, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.protocol.records.runs import GroupSummary, Split, TrajectorySummary
from engine.protocol.requests.runs import Siblings, TrajectoryQuery
from studio.actions.actions import Actions
from studio.pages.page import Page
from studio.pages.review_bar import ReviewBar
from studio.pages.trajectories.empty_page import NoTrajectories
from studio.pages.trajectories.filters.filter_controller import FilterController
from studio.pages.trajectories.groups.columns import ColumnsView
from studio.pages.trajectories.groups.compare import CompareView
from studio.pages.trajectories.groups.group_header import GroupHead
from studio.pages.trajectories.groups.group_list import WIDTH, GroupPanel
from studio.pages.trajectories.keys import Handlers, PageKeys
from studio.pages.trajectories.labels.blind_grading import blinded
from studio.pages.trajectories.labels.label_bar import LabelBar
from studio.pages.trajectories.labels.label_controller import LabelController
from studio.pages.trajectories.labels.review_queue import ReviewQueueController
from studio.pages.trajectories.lists import RunLists
from studio.pages.trajectories.reader.evidence_sheet import EvidenceController
from studio.pages.trajectories.reader.images import ImageController
from studio.pages.trajectories.reader.reader import Reader
from studio.pages.trajectories.trajectory_table import AttemptTable
from studio.pages.trajectories.views import (
    COLUMNS,
    COMPARE,
    MODES,
    READER,
    SCENARIOS,
    TABLE,
    key_of,
    muted_in,
)
from studio.services.session import Session
from studio.theme.theme import theme
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.painting.paint import painting

REFRESH_MS = 1500
FOLD_PX = 900
TINTS = ("advantage", "logprob", "mask", "none")


class TrajectoriesPage(Page):
    """Trajectories page of the selected run. Emits `grading_wanted` when the user asks for the next
    group to grade, `chat_wanted(prompt)` to open the prompt of a turn in the side-by-side chat."""

    grading_wanted = Signal()
    chat_wanted = Signal(object)

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions = actions
        self._lists = RunLists(session, self.tasks, self)
        self._groups, self._rows = self._lists.groups, self._lists.rows
        self._siblings: Siblings | None = None
        self._place: tuple[Split, int, int] | None = None  # of the last group requested
        self._wanted_index: int | None = None
        self._blind = False
        self._group_run = ""
        """Run of the group that was requested last."""
        self._panel, self._head, self._bar = GroupPanel(self._groups), GroupHead(MODES), LabelBar()
        self._columns, self._reader, self._compare = ColumnsView(), Reader(), CompareView()
        self._table = AttemptTable(self._rows)
        self._scenarios = self._lists.scenarios
        self._empty = NoTrajectories()
        self._build()
        self._focus_trail = ("", "")
        self._base = ""
        views = (self._columns, self._reader)
        self._images = ImageController(session, self.tasks, *views, self._body)
        self._proof = EvidenceController(
            session, self.tasks, self._columns, self._reader, self._body
        )
        self._filter = FilterController(
            session,
            self.tasks,
            self._panel.bar,
            self._table,
            self._rows,
            self._columns,
            self._reader,
        )
        self._labels = LabelController(session, self.tasks, self._columns, self._bar, self._body)
        self._inner.addWidget(self._labels.toast)
        self._wire()
        self._wire_labels()
        self._keys = PageKeys(self, self._handlers())
        self.set_mode(COLUMNS)

    def enter(self) -> None:
        self._follow_run()
        self._refresh_timer.start()
        self._panel.list.setFocus()

    def leave(self) -> None:
        self._refresh_timer.stop()

    def show_query(self, query: TrajectoryQuery) -> None:
        """Show the groups and trajectories that match a query; one that filters by trajectory state
        opens the table."""
        self._blind = False
        self._panel.hold(False)
        self._panel.set_query(query)
        self._ask(query)
        if query.state != "all":
            self.set_mode(TABLE)

    def show_group(self, split: Split, step: int, group: int, blind: bool = False) -> None:
        """Load a group and show its columns; `blind` hides rewards, verdicts and labels."""
        self._blind = blind
        self._panel.hold(True)
        self.set_mode(COLUMNS)
        self._fetch(split, step, group)

    def review_next(self) -> None:
        """Start the review queue, or open its next group."""
        self._queue.advance()

    def set_mode(self, mode: int) -> None:
        """Switch to a view, a constant of `views` (COLUMNS, READER, TABLE …). While grading blind,
        views other than COLUMNS are ignored."""
        if mode != COLUMNS and self._blind:
            return  # all other views reveal the ranking
        self._view, self._base = mode, ""
        self._head.set_view(mode)
        self._body.setCurrentIndex(mode)
        self._proof.sheet.raise_()
        self._fold()
        self._keys.mute(muted_in(mode))
        self._read()
        self._home().setFocus(Qt.FocusReason.OtherFocusReason)

    def _home(self) -> QWidget:
        """Return the widget that gets the keyboard focus in the current view."""
        if self._view == COLUMNS and self._panel.isVisible():
            return self._panel.list
        homes = (self._columns, self._reader.transcript, self._table, self._compare.rows)
        return (*homes, self._scenarios)[self._view]

    # Building

    def _build(self) -> None:
        self._view = COLUMNS
        self._body = QStackedWidget()
        for part in (self._columns, self._reader, self._table, self._compare, self._scenarios):
            self._body.addWidget(part)
        self._columns.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        inner = self._inner = vbox(margins=(16, 12, 16, 12), spacing=8)
        self._review = ReviewBar(self.session)
        self._queue = ReviewQueueController(self.session, self.tasks, self._body)
        self._head.add_notice(self._queue.bar)
        self._head.add_notice(self._review)
        add(inner, self._head, (self._body, 1))
        right = QWidget()
        vbox((inner, 1), self._bar, parent=right, spacing=0)
        self._right = QStackedWidget()
        self._right.addWidget(right)
        self._right.addWidget(self._empty)
        below = hbox(self._panel, (self._right, 1), spacing=1)
        vbox(self._panel.bar, (below, 1), parent=self, spacing=0)
        self._refresh_timer = QTimer(self)
        self._refresh_timer.setInterval(REFRESH_MS)

    def _wire(self) -> None:
        run = self.session.run
        run.selected.connect(self._follow_run)
        self.session.runs_changed.connect(self._follow_run)  # a repaired run becomes readable
        self._refresh_timer.timeout.connect(self._refresh)
        self._panel.query_changed.connect(self._ask)
        self._panel.group_chosen.connect(self._open_group)
        self._panel.filters_kept.connect(self._keep_filters)
        self._panel.set_filters(self.session.settings.current.saved_filters)
        self._groups.loaded.connect(self._show_emptiness)
        self._groups.failed.connect(self.session.problem_raised)
        self._rows.failed.connect(self.session.problem_raised)
        self._head.mode_chosen.connect(self.set_mode)
        self._head.paged.connect(self._page)
        self._head.unfolded.connect(self._columns.set_unfolded)
        self._head.folding_chosen.connect(self._columns.set_folding)
        self._columns.paged.connect(self._show_paging)
        self._columns.folds_changed.connect(
            lambda: self._head.show_identical(self._columns.identical())
        )
        self._columns.opened.connect(lambda _: self.set_mode(READER))
        self._reader.tint_chosen.connect(self._columns.set_tint)
        self._reader.chat_wanted.connect(self.chat_wanted)
        self._proof.reader_wanted.connect(lambda: self.set_mode(READER))
        self._table.row_opened.connect(self._open_row)
        self._scenarios.groups_wanted.connect(self._open_query)
        self._empty.action_requested.connect(self._resolve_emptiness)

    def _open_query(self, query: TrajectoryQuery) -> None:
        self.show_query(query)
        self.set_mode(COLUMNS)

    def _wire_labels(self) -> None:
        self._review.groups_wanted.connect(
            lambda step: self._open_query(TrajectoryQuery(split="train", step=step))
        )
        labels = self._labels
        labels.waiting_changed.connect(self._fold)
        labels.group_changed.connect(self._changed_group)
        labels.labelled.connect(self._queue.committed)
        self._queue.group_wanted.connect(self.show_group)
        self._queue.left.connect(self._reveal)
        self._panel.queue.clicked.connect(self._open_queue_menu)
        self._columns.focus_changed.connect(lambda _: self._read())

    def _handlers(self) -> Handlers:
        columns, panel = self._columns, self._panel
        labels = self._labels.handlers(self._home)
        return labels | {
            "label.apply": lambda: self._queue_on() or labels["label.apply"](),
            "label.queue": self.review_next,
            "label.discard": self._escape,
            "label.blind": self.grading_wanted.emit,
            "view.search": self._focus_filter,
            "view.reader": lambda: self._toggle_mode(READER),
            "view.table": lambda: self._toggle_mode(TABLE),
            "view.compare": lambda: self._toggle_mode(COMPARE),
            "view.scenarios": lambda: self._toggle_mode(SCENARIOS),
            "view.evidence": lambda: self._proof.toggle(self._view == READER),
            "view.chat": self._reader.open_chat,
            "view.divergence": self._next_divergence,
            "view.reasoning": self._toggle_reasoning,
            "view.before": lambda: columns.move_focus(-1),
            "view.after": lambda: columns.move_focus(1),
            "view.group_before": lambda: panel.move(-1),
            "view.group_after": lambda: panel.move(1),
            "view.tint": lambda place: self._reader.set_tint(TINTS[place], True),
        }

    def _focus_filter(self) -> None:
        if self._view == SCENARIOS:  # which the filter does not change
            self.set_mode(COLUMNS)
        self._panel.bar.input.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _escape(self) -> None:
        """Discard the draft, or close the sheet, or leave the view or blind mode."""
        if not self._labels.labelling.draft:
            left = self._queue.leave()
            if self._reveal() or left:
                return
        closed = self._proof.close() or self._labels.labelling.discard()
        if not closed and self._view != COLUMNS:
            self.set_mode(COLUMNS)

    def _reveal(self) -> bool:
        """End blind mode and show the whole group; returns False if it is not blind."""
        if self._blind and self._siblings:
            self._open_group(self._siblings.group)
            return True
        return False

    def _queue_on(self) -> bool:
        """Open the next group of the review queue if the current one was labelled before."""
        return not self._labels.labelling.draft and self._queue.advance_if_labelled()

    def _open_queue_menu(self) -> None:
        button = self._panel.queue
        self._queue.menu(self).popup(button.mapToGlobal(button.rect().bottomLeft()))

    def _toggle_mode(self, mode: int) -> None:
        self.set_mode(COLUMNS if self._view == mode else mode)

    def _next_divergence(self) -> None:
        if self._view == COMPARE:
            self._compare.rows.next_difference(1)
        elif self._view == READER:
            self._reader.next_divergence(self._columns.divergences())
        else:
            self._columns.next_divergence()

    def _toggle_reasoning(self) -> None:
        if self._view == READER:
            self._reader.transcript.toggle_reasoning()
        else:
            self._columns.toggle_reasoning()

    def _changed_group(self, group: GroupSummary) -> None:
        """Reload a group and the lists after a label was applied, undone or redone."""
        if self._place == key_of(group):
            self._blind = False
            self._fetch(group.split, group.step, group.group)
        self._lists.refresh()

    # Display

    @Slot()
    def _follow_run(self) -> None:
        run_id = self.session.run.run_id
        if run_id != self._group_run:
            self._forget_group(run_id)
            self._lists.forget()
        if not self.isVisible():
            return
        if self.session.run.damaged:
            run_id = ""  # a damaged run is unreadable
        if self._lists.follow(run_id):
            self._panel.set_query(TrajectoryQuery())
            self._filter.follow()
            self._filter.show_query(TrajectoryQuery())
        self._refresh()
        self._show_emptiness()

    def _forget_group(self, run_id: str) -> None:
        """Clear the group unless it belongs to this run; trajectory ids repeat between runs."""
        self._group_run, self._siblings, self._place = run_id, None, None
        self._wanted_index, self._blind = None, False
        self._focus_trail, self._base = ("", ""), ""
        self.tasks.cancel("siblings")
        for part in (self._columns, self._reader, self._compare, self._head):
            part.clear()
        self._labels.show_group(None)
        self._queue.leave()
        self._panel.hold(False)
        self._proof.show_group(None, {})
        if self._view in (READER, COMPARE):
            self.set_mode(COLUMNS)
        self._fold()

    @Slot()
    def _refresh(self) -> None:
        """Reload after new trajectories, steps or labels of an active run."""
        labels_changed = self._lists.catch_up(self.session.run)
        self._labels.show_run()
        if labels_changed and self._place is not None:  # labels can come from the command line
            self._fetch(*self._place)

    @Slot(object)
    def _ask(self, query: TrajectoryQuery) -> None:
        self._filter.show_query(query)
        self._lists.set_query(query)

    def _keep_filters(self, lines: list[str]) -> None:
        self.session.settings.update(saved_filters=lines)
        self._panel.set_filters(lines)

    @Slot()
    def _show_emptiness(self) -> None:
        empty = self._empty.show_state(self.session.run, self._groups, self._lists.has_run)
        self._right.setCurrentIndex(1 if empty else 0)

    def _resolve_emptiness(self) -> None:
        if self._groups.query != TrajectoryQuery():
            self._panel.set_query(TrajectoryQuery())
            self._ask(TrajectoryQuery())
        else:
            self._actions.trigger("go.run")

    @Slot(object)
    def _open_group(self, group: GroupSummary) -> None:
        self._blind = False
        self._fetch(group.split, group.step, group.group)

    def _open_row(self, row: int) -> None:
        record = self._rows.record(row)
        if isinstance(record, TrajectorySummary):
            self._wanted_index, self._blind = record.index, False
            self._fetch(record.split, record.step, record.group)
            self.set_mode(READER)

    def _fetch(self, split: Split, step: int, group: int) -> None:
        run_id = self.session.run.run_id
        self._place = (split, step, group)
        self._panel.show_place(self._place)
        self._queue.follow(self._place)

        async def ask() -> Siblings:
            return await self.session.client.siblings(run_id, split, step, group)

        def show(siblings: Siblings) -> None:
            if run_id == self.session.run.run_id:
                self._show_siblings(run_id, siblings)

        self.tasks.run("siblings", ask(), show)

    def _show_siblings(self, run_id: str, siblings: Siblings) -> None:
        self._siblings = siblings
        spec = self.session.run.state.spec
        weights, blind = spec.config.reward.weights if spec else {}, self._blind
        shown = blinded(siblings) if blind else siblings
        self._images.show_run(run_id)
        self._proof.show_group(shown, weights, run_id)
        self._head.show_group(shown.group, shown.trajectories, weights, blind)
        self._columns.show_group(shown, weights, blind)
        self._labels.show_group(siblings, run_id, blind)
        self._fold()
        if self._wanted_index is not None:
            self._columns.focus_index(self._wanted_index)
            self._wanted_index = None
        self._read()

    def _page(self, by: int) -> None:
        """Show the next (negative: previous) columns, or the next trajectory in the reader."""
        if self._view == COLUMNS:
            self._columns.page(by)
        else:
            self._columns.move_focus(by)

    def _show_paging(self) -> None:
        columns = self._columns
        shown = columns.shown_words() if self._view == COLUMNS else columns.focus_words()
        self._head.show_paging(shown)

    def _read(self) -> None:
        """Show the focused trajectory in the reader, if the reader is visible."""
        self._show_paging()
        self._proof.refresh(reading=self._view == READER)
        columns = self._columns
        record = columns.record()
        if record is not None and record.id != self._focus_trail[1]:
            self._focus_trail = (self._focus_trail[1], record.id)
        if self._view == COMPARE:
            self._base = self._compare.show_focused(columns, self._base, self._focus_trail[0])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def _fold(self) -> None:
        """Hide the group list in narrow windows and beside the outline of the reader."""
        shown = self.width() >= FOLD_PX and self._view not in (READER, COMPARE, SCENARIOS)
        shown = shown and not self._blind
        if not shown and self._panel.list.hasFocus():
            self._columns.setFocus(
                Qt.FocusReason.OtherFocusReason
            )  # keep the keyboard focus on the page
        self._panel.setVisible(shown)
        self._panel.bar.setVisible(not self._blind)
        self._panel.bar.columns.setVisible(self._view == TABLE)
        waiting = bool(self._labels.labelling.draft) and self._view in (READER, COMPARE)
        self._bar.setVisible(self._view == COLUMNS or waiting)
        self.update()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with painting(self) as painter:
            if self._panel.isVisible():
                top = self._panel.y()
                painter.fillRect(WIDTH, top, 1, self.height() - top, theme().color("border"))
