"""Table of trajectories with columns of choice; long texts share the space that is left."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QMenu

from studio.models.trajectories import FIRST_SHOWN, LONG, TITLES, TrajectoryTableModel
from studio.widgets.tables.table import Table

WIDE_PX = 960
SPARE = ("Index", "Turns", "Time", "Answer")
"""Columns of the first choice that a narrow table hides; the reader shows them too."""
_KINDS: dict[str, tuple[int, str]] = {
    "Scenario": (160, "strong"),
    "Step": (104, "figure"),
    "Index": (72, "figure"),
    "Reward": (72, "mono"),
    "Advantage": (88, "advantage"),
    "Turns": (68, "figure"),
    "Tokens": (72, "figure"),
    "Time": (76, "figure"),
    "Latency": (84, "figure"),
    "Tool calls": (92, "figure"),
    "Parts": (200, "text"),
    "Prompt": (240, "text"),
    "Answer": (200, "text"),
    "Judge's reason": (240, "text"),
    "Model": (160, "text"),
    "Labels": (104, "text"),
    "Notes": (120, "text"),
}
"""Smallest width in pixels and kind, by title."""


class AttemptTable(Table):
    """Table of trajectories, sorted by the engine. Emits `columns_chosen(titles)` when columns are
    chosen in the menu of its header; empty is the first choice."""

    columns_chosen = Signal(list)

    def __init__(self, model: TrajectoryTableModel) -> None:
        super().__init__("Trajectories")
        self.setModel(model)
        self.setSelectionMode(self.SelectionMode.ExtendedSelection)
        for place, title in enumerate(TITLES):
            self.set_column(place, *_KINDS[title])
        self._chosen: tuple[str, ...] = ()
        self.setSortingEnabled(True)
        head = self.horizontalHeader()
        head.setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
        head.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        head.customContextMenuRequested.connect(self._open_menu)

    def set_columns(self, titles: Sequence[str]) -> None:
        """Show the columns with these titles; the default columns if there are none or all are
        unknown."""
        self._chosen = tuple(title for title in TITLES if title in titles)
        self._fit()

    def shown_columns(self) -> list[str]:
        """Titles of the columns that are shown, from left to right."""
        return [title for place, title in enumerate(TITLES) if not self.isColumnHidden(place)]

    def column_menu(self) -> QMenu:
        """Build the menu that chooses columns."""
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        chosen = self._chosen or FIRST_SHOWN
        for title in TITLES[1:]:
            action = menu.addAction(title)
            action.setCheckable(True)
            action.setChecked(title in chosen)
            action.triggered.connect(lambda on, t=title: self._toggle(t, on))
        menu.addSeparator()
        reset = menu.addAction("Reset columns")
        reset.setEnabled(bool(self._chosen))
        reset.triggered.connect(lambda: self._choose(()))
        return menu

    def chosen_rows(self) -> list[int]:
        """Return the indices of the selected rows in order; empty for fewer than two rows, since a
        single selected row only marks the keyboard focus."""
        rows = sorted(index.row() for index in self.selectionModel().selectedRows())
        return rows if len(rows) > 1 else []

    def _open_menu(self, at: QPoint) -> None:
        self.column_menu().popup(self.horizontalHeader().mapToGlobal(at))

    def _toggle(self, title: str, on: bool) -> None:
        others = [one for one in self._chosen or FIRST_SHOWN if one != title]
        self._choose([*others, title] if on else others)

    def _choose(self, titles: Sequence[str]) -> None:
        self.set_columns(titles)
        self.columns_chosen.emit(list(self._chosen))

    def _fit(self) -> None:
        """Show the chosen columns, and give long texts the space that is left."""
        narrow = self.width() < WIDE_PX and not self._chosen
        chosen = self._chosen or FIRST_SHOWN
        shown = [one for one in chosen if not (narrow and one in SPARE)]
        for place, title in enumerate(TITLES):
            self.setColumnHidden(place, title not in shown)
        room = self.viewport().width() - sum(_KINDS[title][0] for title in shown)
        long = [title for title in LONG if title in shown]
        more = max(0, room) // max(1, len(long))
        for title in shown:
            extra = more if title in long else 0
            self.setColumnWidth(TITLES.index(title), _KINDS[title][0] + extra)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
