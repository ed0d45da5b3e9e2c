"""List of groups with filters."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.protocol.records.runs import GroupSummary, Split
from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.groups import GroupListModel, group_words
from studio.models.paged import Index
from studio.pages.trajectories.filters.filter_bar import FilterBar
from studio.pages.trajectories.groups.saved_filters import kept, name_of, packed, unpacked
from studio.text import formatting
from studio.theme.item_roles import ICON_ROLE
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.group_dots import paint_group_dots
from studio.widgets.text.chip import FilterChip
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

Place = tuple[Split, int, int]
WIDTH = 272
ROW_PX = 45
SHOWN = 16
"""Maximum number of characters of a scenario id."""


class _GroupDelegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(WIDTH, ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        rect = QRectF(option.rect)  # type: ignore[attr-defined]
        state = option.state  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme().color("selection"))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(rect, theme().color("hover"))
        line = QRectF(rect.left(), rect.bottom() - 1, rect.width(), 1)
        painter.fillRect(line, theme().color("border"))
        group = index.data(Qt.ItemDataRole.UserRole)
        inner = rect.adjusted(12, 4, -12, -5)
        if group is None:
            paint.text(painter, inner, "…", "faint", "label")
        else:
            _paint_group(painter, inner, group, index.data(ICON_ROLE) or [])
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_Selected:
            painter.fillRect(
                QRectF(rect.left(), rect.top(), 2, rect.height()), theme().color("focus")
            )
        painter.restore()


def _paint_group(
    painter: QPainter, rect: QRectF, group: GroupSummary, icons: list[tuple[str, str]]
) -> None:
    top = QRectF(rect.left(), rect.top(), rect.width() - 44 - 18 * len(icons), 18)
    for place, (name, tone) in enumerate(icons):
        at = QPointF(top.right() + 2 + 18 * place, rect.top() + 2)
        paint.icon(painter, at, name, tone, 14)
    paint.text(painter, top, group.title, "text", "label", 500)
    mean = QRectF(rect.right() - 40, rect.top(), 40, 18)
    paint.text(
        painter, mean, formatting.number(group.mean), "muted", "mono-small", align=paint.RIGHT
    )
    below = QRectF(rect.left(), rect.top() + 18, rect.width() - 92, 17)
    quiet = group.signal or group.split == "validation"
    paint.text(painter, below, group_words(group), "faint" if quiet else "warn", "caption")
    dots = QRectF(rect.right() - 84, rect.top() + 18, 84, 17)
    paint_group_dots(painter, dots, group.rewards)


class GroupPanel(QWidget):
    """Group list with filters. Emits `group_chosen(group)`, `query_changed(query)` when a filter
    changes, and `filters_kept(lines)` when a filter is saved or deleted."""

    group_chosen = Signal(object)
    query_changed = Signal(object)
    filters_kept = Signal(list)

    def __init__(self, model: GroupListModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH)
        self._model, self._query = model, TrajectoryQuery()
        self._held = False
        self._shown: Place | None = None
        """Group shown on the page."""
        self._row, self._total = -1, 0
        """Last known row of that group, and the length of the list at that time."""
        self._awaited = -1
        """Row that was selected before its group was loaded."""
        self.bar = FilterBar()
        """Filter bar, which the page shows above everything."""
        self._step = FilterChip("Step", active=True)
        self._silent = FilterChip("No signal")
        self._unscored = FilterChip("Unscored")
        self._cut = FilterChip("Truncated")
        self._tests = FilterChip("Validation")
        self._labelled = FilterChip("Labelled")
        self._unlabelled = FilterChip("Unlabelled")
        self._words = Text("", "caption", tone="faint")
        self.queue = Button("Review queue", "outlined", icon="list-checks", menu_arrow=True)
        self._kept: list[str] = []
        self.list = QListView()
        self._build()
        self._wire()

    @property
    def query(self) -> TrajectoryQuery:
        return self._query

    def set_query(self, query: TrajectoryQuery) -> None:
        """Show a query in search field and filters, without emitting."""
        self._query = query
        self.bar.set_filter(query.filter)
        self._silent.set_active(query.signal is False)
        self._unscored.set_active(query.state == "unscored")
        self._cut.set_active(query.state == "truncated")
        self._tests.set_active(query.split == "validation")
        self._labelled.set_active(query.labelled is True)
        self._unlabelled.set_active(query.labelled is False)
        self._show_step()

    def set_filters(self, kept_lines: Sequence[str]) -> None:
        """Set the saved filters (lines of `saved_filters.packed`), newest first."""
        self._kept = list(kept_lines)

    def filter_menu(self) -> QMenu:
        """Build the menu that opens, saves and deletes filters."""
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        known = [(line, query) for line in self._kept if (query := unpacked(line)) is not None]
        for _, query in known:
            action = menu.addAction(_menu_words(query))
            action.triggered.connect(lambda _=False, q=query: self._change(**q.model_dump()))
        if known:
            menu.addSeparator()
        line = packed(self._query)
        save = menu.addAction("Save this filter")
        save.setEnabled(line != packed(TrajectoryQuery()) and line not in self._kept)
        save.triggered.connect(lambda: self.filters_kept.emit(kept(self._kept, self._query)))
        for old, query in known:
            forget = menu.addAction(f"Delete {_menu_words(query)}")
            rest = [one for one in self._kept if one != old]
            forget.triggered.connect(lambda _=False, lines=rest: self.filters_kept.emit(lines))
        return menu

    def choose(self, row: int) -> None:
        """Select a row as a click does."""
        if 0 <= row < self._model.rowCount():
            self.list.setCurrentIndex(self._model.index(row, 0))

    def hold(self, held: bool) -> None:
        """Suspend automatic row selection (`held`), as for a group that is not in the list."""
        self._held = held

    def show_place(self, place: Place) -> None:
        """Set the group shown on the page, (split, step, group number), and select its row."""
        self._shown, self._row, self._awaited = place, -1, -1
        self._follow_shown()

    def move(self, by: int) -> None:  # type: ignore[override]
        """Select the group `by` rows further down (negative: up)."""
        self.choose(max(0, self.list.currentIndex().row() + by))

    def _build(self) -> None:
        self.list.setModel(self._model)
        self.list.setItemDelegate(_GroupDelegate(self.list))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setAccessibleName("Groups")
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        lines = []
        rows = (
            (self._silent, self._unscored, self._cut),
            (self._tests, self._labelled, self._unlabelled),
        )
        for row in rows:
            chips = hbox(*row, STRETCH, spacing=4)
            lines.append(chips)
        top = vbox(margins=(12, 10, 12, 6), spacing=8)
        for line in lines:
            top.addLayout(line)
        below = hbox(self._step, self._words, STRETCH, spacing=8)
        top.addLayout(below)
        top.addWidget(self.queue)
        self.queue.setEnabled(False)
        set_tip(self.queue, "Label the most informative groups first  Q")
        vbox(top, (self.list, 1), parent=self, spacing=0)
        self._show_step()

    def _wire(self) -> None:
        self.bar.saved.clicked.connect(self._open_filters)
        self.bar.filter_changed.connect(lambda words: self._change(filter=words))
        self._step.removed.connect(self._anywhere)
        self._step.toggled.connect(self._anywhere)
        for chip, state in ((self._unscored, "unscored"), (self._cut, "truncated")):
            chip.toggled.connect(lambda on, s=state: self._change(state=s if on else "all"))
            chip.removed.connect(lambda: self._change(state="all"))
        self._silent.toggled.connect(lambda on: self._change(signal=False if on else None))
        self._silent.removed.connect(lambda: self._change(signal=None))
        for chip, wanted in ((self._labelled, True), (self._unlabelled, False)):
            chip.toggled.connect(lambda on, w=wanted: self._change(labelled=w if on else None))
            chip.removed.connect(lambda: self._change(labelled=None))
        self._tests.toggled.connect(lambda on: self._change(split="validation" if on else None))
        self._tests.removed.connect(lambda: self._change(split=None))
        self.list.selectionModel().currentChanged.connect(self._chosen)
        self._model.total_changed.connect(self._show_count)
        self._model.loaded.connect(self._loaded)
        self._model.modelReset.connect(self._begin_anew)
        self.list.clicked.connect(self._pressed)
        self.list.activated.connect(self._pressed)

    def _open_filters(self) -> None:
        saved = self.bar.saved
        self.filter_menu().popup(saved.mapToGlobal(saved.rect().bottomLeft()))

    def _change(self, **changes: object) -> None:
        query = TrajectoryQuery.model_validate({**self._query.model_dump(), **changes})
        if query != self._query:
            self.set_query(query)
            self.query_changed.emit(query)

    def _anywhere(self) -> None:
        self._change(step=None, step_to=None, group=None, scenario_id=None)

    def _show_step(self) -> None:
        words = place_words(self._query)
        self._step.setVisible(bool(words))
        self._step.set_state(words)
        self._step.set_active(True)

    def _show_count(self, total: int) -> None:
        self._words.set_words(formatting.plural(total, "group"))
        self.queue.setEnabled(self.queue.isEnabled() or total > 0)

    def _loaded(self) -> None:
        if self._awaited >= 0 and (group := self._model.record(self._awaited)) is not None:
            self._choose(group)
        elif self._shown is not None:
            self._follow_shown()
        elif not self._held and self._model.rowCount():
            QTimer.singleShot(0, self, self._first)

    def _first(self) -> None:
        if self._shown is None and self._awaited < 0:
            self.choose(0)

    def _begin_anew(self) -> None:
        """Forget the group shown, for another run or query."""
        self._shown, self._row, self._awaited = None, -1, -1

    def _follow_shown(self) -> None:
        """Move the current row to the group shown on the page; unset it if its row is unknown."""
        if self._shown is None or self._awaited >= 0:
            return
        split, step, group = self._shown
        row, total = self._model.row_of(step, group, split), self._model.total
        if row is not None:
            self._row, self._total = row, total
        elif 0 <= self._row < total:
            self._model.record(min(total - 1, self._row + max(0, total - self._total)))
        self._make_current(row)

    def _make_current(self, row: int | None) -> None:
        """Set the current row without emitting a choice or scrolling."""
        index = QModelIndex() if row is None else self._model.index(row, 0)
        if index != self.list.currentIndex():
            choosing = self.list.selectionModel()
            choosing.currentChanged.disconnect(self._chosen)
            self.list.setAutoScroll(False)
            self.list.setCurrentIndex(index)
            self.list.setAutoScroll(True)
            choosing.currentChanged.connect(self._chosen)

    def _chosen(self, index: QModelIndex) -> None:
        group = index.data(Qt.ItemDataRole.UserRole) if index.isValid() else None
        if group is not None:
            self._choose(group)
        else:
            self._awaited = index.row()

    def _pressed(self, index: QModelIndex) -> None:
        """Choose a clicked group unless the page shows it; the current row may be clicked again."""
        group = index.data(Qt.ItemDataRole.UserRole)
        if group is not None and _place(group) != self._shown:
            self._choose(group)

    def _choose(self, group: GroupSummary) -> None:
        self._held = False
        self.show_place(_place(group))
        self.group_chosen.emit(group)


def _place(group: GroupSummary) -> Place:
    return group.split, group.step, group.group


def place_words(query: TrajectoryQuery) -> str:
    """Describe the steps, the group or the scenario to which a query is limited; empty if none."""
    low, high = query.step, query.step_to
    words = [] if low is None else [f"Step {low}" if high in (None, low) else f"Step {low}–{high}"]
    if low is not None and query.group is not None:
        words.append(f"group {query.group + 1}")
    if query.scenario_id is not None:
        words.append(f"Scenario {plain(query.scenario_id)[:SHOWN]}")
    return ", ".join(words)


def _menu_words(query: TrajectoryQuery) -> str:
    return plain(name_of(query)[:80]).replace("&", "&&")
