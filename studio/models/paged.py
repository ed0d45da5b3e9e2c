"""Table over a paged query of the engine: visible pages are fetched and cached. Sorting, filtering
and search change the query; rows are never sorted here."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    QTimer,
    Signal,
)

from engine.protocol.problems import Problem
from engine.protocol.records.curves import CurveQuery
from engine.protocol.requests.run_table import RunQuery
from engine.protocol.requests.runs import TrajectoryQuery
from studio.runtime.tasks import TaskScope
from studio.theme.plain_tooltips import plain_tip

R = TypeVar("R")
Q = TypeVar("Q", TrajectoryQuery, CurveQuery, RunQuery)
Index = QModelIndex | QPersistentModelIndex
PAGE = 100
KEPT_PAGES = 40
SEEN_PAGES = 2
"""Maximum number of pages that are visible at a time."""
ROOT = QModelIndex()


Fetch = Callable[[Any], Awaitable[Any]]


class PagedModel(QAbstractTableModel, Generic[R, Q]):
    """Paged model: the first response has the number of rows; pages are fetched on demand."""

    total_changed = Signal(int)
    loaded = Signal()
    failed = Signal(object)

    def __init__(self, tasks: TaskScope, query: Q, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.query: Q = query
        self.total = 0
        self.is_loaded = False
        self._tasks = tasks
        self._fetch: Fetch | None = None
        self._pages: OrderedDict[int, list[R]] = OrderedDict()
        self._requested: dict[int, None] = {}
        """Pages that are not loaded, the newest request last."""
        self._stale: set[int] = set()
        self._name = f"{type(self).__name__}-{id(self)}"
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._fetch_requested)
        tasks.busy_changed.connect(self._resume_fetching)

    # Source and query

    def set_source(self, fetch: Fetch | None) -> None:
        """Set the fetch function, e.g. of another run, and reload; None empties the table."""
        self._fetch = fetch
        self._restart()

    def set_query(self, query: Q) -> None:
        """Set the query and reload from its first row; the model sets `offset` and `limit`."""
        if query != self.query:
            self.query = query
            self._restart()

    def refresh(self) -> None:
        """Fetch the visible pages again; their rows stay until the new ones arrive. A page that is
        being fetched may be outdated, so it is fetched once more. All other pages are dropped,
        since rows may have moved between pages."""
        if self._fetch is not None:
            seen = list(self._pages)[-SEEN_PAGES:]
            for page in self._pages.keys() - set(seen):
                del self._pages[page]
            self._stale.update(seen or [0])
            self._timer.start(0)

    def record(self, row: int) -> R | None:
        """Return the record of a row, or request its page and return None."""
        page = self._pages.get(row // PAGE)
        if page is None:
            self._want(row // PAGE)
            return None
        self._pages.move_to_end(row // PAGE)
        place = row % PAGE
        return page[place] if place < len(page) else None

    # Qt interface

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else self.total

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else 1

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        record = self.record(index.row()) if index.isValid() else None
        if record is None:
            return "…" if role == Qt.ItemDataRole.DisplayRole and index.column() == 0 else None
        if role == Qt.ItemDataRole.UserRole:
            return record
        value = self.cell(record, index.column(), role)
        tip = role == Qt.ItemDataRole.ToolTipRole and isinstance(value, str)
        return plain_tip(value) if tip else value

    def cell(self, record: R, column: int, role: int) -> Any:
        """Return the value of a cell for a Qt role, from the loaded `record` of its row;
        implemented by subclasses."""
        raise NotImplementedError

    # Fetching

    def _restart(self) -> None:
        self._tasks.cancel(self._name)
        self._requested.clear()
        self._stale.clear()
        self.beginResetModel()
        self._pages.clear()
        self.total = 0
        self.is_loaded = False
        self.endResetModel()
        if self._fetch is not None:
            self._want(0)

    def _want(self, page: int) -> None:
        if self._fetch is not None:
            self._requested.pop(page, None)
            self._requested[page] = None
            if not self._timer.isActive():
                self._timer.start(0)

    def _fetch_requested(self) -> None:
        pages = self._requested or self._stale
        if pages and self._fetch is not None and not self._tasks.busy(self._name):
            self._tasks.run(self._name, self._fetch_all(self._fetch), failed=self._fail)

    def _resume_fetching(self, name: str, busy: bool) -> None:
        """Start a fetch that was requested while the last job was ending."""
        if name == self._name and not busy:
            self._fetch_requested()

    async def _fetch_all(self, fetch: Fetch) -> None:
        """Fetch requested pages, the newest request first, then stale ones: fast scrolling does not
        wait for pages that were passed."""
        while pages := [*sorted(self._stale), *self._requested]:
            page = pages[-1]
            self._stale.discard(page)
            limits = {"offset": page * PAGE, "limit": PAGE}
            answer = await fetch(self.query.model_copy(update=limits))
            self._requested.pop(page, None)
            self._put(page, answer.items, answer.total)

    def _fail(self, problem: Problem) -> None:
        self._requested.clear()
        self._stale.clear()
        self.failed.emit(problem)

    def _put(self, page: int, items: list[R], total: int) -> None:
        self._resize(total)
        self._pages[page] = items
        self._pages.move_to_end(page)
        while len(self._pages) > KEPT_PAGES:
            self._pages.popitem(last=False)
        last = min(self.total, (page + 1) * PAGE) - 1
        if last >= page * PAGE:
            right = self.columnCount() - 1
            self.dataChanged.emit(self.index(page * PAGE, 0), self.index(last, right))
        self.is_loaded = True
        self.loaded.emit()

    def _resize(self, total: int) -> None:
        if total > self.total:
            self.beginInsertRows(QModelIndex(), self.total, total - 1)
            self.total = total
            self.endInsertRows()
        elif total < self.total:
            self.beginRemoveRows(QModelIndex(), total, self.total - 1)
            self.total = total
            self.endRemoveRows()
        elif self.is_loaded:
            return
        self.total_changed.emit(total)
