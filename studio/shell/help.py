"""Help window: search and groups on the left, the page on the right, links between pages."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt, QUrl, Slot
from PySide6.QtGui import (
    QImage,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShortcut,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextTable,
    QTextTableCell,
)
from PySide6.QtWidgets import (
    QDialog,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTextBrowser,
    QTextEdit,
    QWidget,
)

from studio.models.rows import RowsModel
from studio.text.help_pages import Page, load_pages, resolve, search, slug
from studio.theme.theme import theme
from studio.widgets.controls.inputs import SearchInput
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text

SIDE_PX = 304
TEXT_PX = 880
"""Widest text column: longer lines are hard to read."""
SIZE = QSize(1180, 760)
ROW_PX, GROUP_PX = 30, 38
HELP_OF_PAGE = {
    "": "index.md",
    "home": "index.md",
    "setup": "reference/project-files.md",
    "judge": "how-to/llm-judge.md",
    "runs": "how-to/compare-runs.md",
    "run": "explanation/training-charts.md",
    "trajectories": "how-to/human-labels.md",
    "checkpoints": "how-to/checkpoints.md",
    "models": "how-to/models.md",
    "settings": "start/installation.md",
}
"""Documentation page that F1 opens, by the key of the studio's page in view."""
Index = QModelIndex | QPersistentModelIndex


class PageListModel(RowsModel[Page | str]):
    """Pages under their group titles (rows that are `str`, which cannot be selected)."""

    columns = ("Page",)

    def show_pages(self, pages: list[Page], grouped: bool) -> None:
        """Replace all rows by pages, with headings of their groups if `grouped`, in this order."""
        rows: list[Page | str] = []
        group = ""
        for page in pages:
            if grouped and page.group != group:
                group = page.group
                rows.append(group)
            rows.append(page)
        self.set_rows(rows)

    def cell(self, row: Page | str, column: int, role: int) -> str | None:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return row if isinstance(row, str) else row.title
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if isinstance(self.rows[index.row()], str):
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def row_of(self, path: str) -> int:
        """Row of a page; -1 if it is not shown."""
        for number, row in enumerate(self.rows):
            if isinstance(row, Page) and row.path == path:
                return number
        return -1


class PageDelegate(QStyledItemDelegate):
    """Group titles and page titles."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row = index.data(Qt.ItemDataRole.UserRole)
        area = QRectF(option.rect)  # type: ignore[attr-defined]
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(row, str):
            area.adjust(12, 12, -8, 0)
            paint.text(painter, area, row, "faint", "caption", 600)
        else:
            state = option.state  # type: ignore[attr-defined]
            chosen = bool(state & QStyle.StateFlag.State_Selected)
            if chosen or state & QStyle.StateFlag.State_MouseOver:
                fill = "selection" if chosen else "hover"
                paint.box(painter, area.adjusted(4, 1, -4, -1), fill, None, 6)
            area.adjust(12, 0, -12, 0)
            tone = "text" if chosen else "muted"
            paint.text(painter, area, row.title, tone, "label", 600 if chosen else 400)
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        is_group = isinstance(index.data(Qt.ItemDataRole.UserRole), str)
        return QSize(SIDE_PX, GROUP_PX if is_group else ROW_PX)


class GuideBrowser(QTextBrowser):
    """Browser of a page's Markdown. Emits `anchorClicked` for links and loads no resources."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setOpenLinks(False)
        self.setAccessibleName("Help page")
        self.document().setDocumentMargin(28)
        self.setFont(theme().font("body"))

    def show_page(self, markdown: str) -> None:
        """Show the Markdown text of a page from its start."""
        self.setMarkdown(markdown)
        cursor = QTextCursor(self.document())
        while True:
            _dress_block(cursor)
            if not cursor.movePosition(QTextCursor.MoveOperation.NextBlock):
                break
        _frame_code(self.document())
        for frame in self.document().rootFrame().childFrames():
            if isinstance(frame, QTextTable):
                _dress_table(frame)
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def show_heading(self, anchor: str) -> None:
        """Scroll to the heading with this anchor, if there is one."""
        block = self.document().begin()
        while block.isValid():
            if block.blockFormat().headingLevel() and slug(block.text()) == anchor:
                top = self.document().documentLayout().blockBoundingRect(block).top()
                self.verticalScrollBar().setValue(round(top))
                return
            block = block.next()

    def mark_words(self, words: str) -> None:
        """Highlight every occurrence of the search words and scroll to the first one."""
        marks: list[QTextEdit.ExtraSelection] = []
        for word in words.split():
            found = self.document().find(word, 0)
            while not found.isNull():
                mark = QTextEdit.ExtraSelection()
                mark.cursor = found  # type: ignore[attr-defined]
                mark.format.setBackground(theme().color("human-soft"))  # type: ignore[attr-defined]
                mark.format.setForeground(theme().color("text"))  # type: ignore[attr-defined]
                marks.append(mark)
                found = self.document().find(word, found)
        self.setExtraSelections(marks)
        if marks:
            first = min((mark.cursor for mark in marks), key=QTextCursor.selectionStart)  # type: ignore[attr-defined]
            self.moveCursor(QTextCursor.MoveOperation.End)  # so that the match comes to the top
            self.setTextCursor(_collapsed(first))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.setViewportMargins(0, 0, max(0, self.width() - TEXT_PX), 0)
        super().resizeEvent(event)

    def loadResource(self, kind: int, name: QUrl | str) -> QImage:
        return QImage(1, 1, QImage.Format.Format_ARGB32)


class HelpDialog(QDialog):
    """Help window: `HelpDialog(window, "how-to/evaluation.md").open()`, then `show_path`."""

    def __init__(self, window: QWidget, path: str = "index.md") -> None:
        super().__init__(window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Help")
        self.resize(SIZE)
        self.pages = load_pages()
        self._page = next(page for page in self.pages if page.path == path)
        self._past: list[str] = []
        """Paths of the pages shown before, for Back."""
        self._browser = GuideBrowser(self)
        self._browser.anchorClicked.connect(self._follow)
        self._search = SearchInput("Search help", key="/")
        self._search.search_changed.connect(self._searched)
        self._model = PageListModel(self)
        self._list = QListView()
        self._list.setAccessibleName("Help pages")
        self._list.setModel(self._model)
        self._list.setItemDelegate(PageDelegate(self._list))
        self._list.setMouseTracking(True)
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._list.selectionModel().currentChanged.connect(self._chosen)
        self._none = Text("", "body", tone="muted", wrap=True)
        self._none.setContentsMargins(12, 16, 12, 0)
        self._none.hide()
        self._build()
        QShortcut(QKeySequence("/"), self, self._search.setFocus)
        QShortcut(QKeySequence.StandardKey.Back, self, self.go_back)
        self._searched("")
        self._list.setFocus()
        theme().changed.connect(self._recolour)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        with paint.painting(self) as painter:
            painter.fillRect(SIDE_PX, 0, 1, self.height(), theme().color("border"))

    def _build(self) -> None:
        side = QWidget()
        side.setFixedWidth(SIDE_PX)
        vbox(
            self._search, self._none, (self._list, 1), parent=side, margins=(8, 12, 8, 8), spacing=8
        )
        hbox(side, (self._browser, 1), parent=self, spacing=1)

    def show_path(self, path: str, anchor: str = "") -> None:
        """Show the page at `path` in the help folder, at the heading `anchor` (empty: its start).
        Raises KeyError for an unknown page."""
        page = next((one for one in self.pages if one.path == path), None)
        if page is None:
            raise KeyError(f"no help page {path!r}")
        if page != self._page:
            self._past.append(self._page.path)
        self._show(page)
        if anchor:
            self._browser.show_heading(anchor)

    def go_back(self) -> None:
        """Show the previous page (Alt ←)."""
        if self._past:
            path = self._past.pop()
            self._show(next(page for page in self.pages if page.path == path))

    @property
    def page(self) -> Page:
        return self._page

    def _show(self, page: Page) -> None:
        self._page = page
        self._browser.show_page(page.text)
        self._browser.mark_words(self._search.text())
        row = self._model.row_of(page.path)
        selection = self._list.selectionModel()
        if row < 0:
            selection.clear()
        elif self._list.currentIndex().row() != row:
            self._list.setCurrentIndex(self._model.index(row, 0))

    @Slot()
    def _recolour(self) -> None:
        """Show the page again, in the colours of a new theme and at the same place."""
        bar = self._browser.verticalScrollBar()
        place = bar.value()
        self._show(self._page)
        self._browser.document().documentLayout().documentSize()  # lays it out, as far as its end
        bar.setValue(place)

    @Slot(QUrl)
    def _follow(self, url: QUrl) -> None:
        path, anchor = resolve(self._page, url.toString())
        if path:
            self.show_path(path, anchor)

    @Slot(str)
    def _searched(self, words: str) -> None:
        """List the matching pages; show the first unless the current one matches."""
        found = search(self.pages, words)
        self._model.show_pages(found, grouped=not words.strip())
        self._none.setVisible(not found)
        self._none.set_words(f"No help page contains “{words.strip()}”.")
        if found:
            self._show(self._page if self._page in found else found[0])

    @Slot(QModelIndex, QModelIndex)
    def _chosen(self, index: QModelIndex, _: QModelIndex) -> None:
        row = index.data(Qt.ItemDataRole.UserRole)
        if isinstance(row, Page) and row != self._page:
            self.show_path(row.path)


def _dress_block(cursor: QTextCursor) -> None:
    form = cursor.blockFormat()
    level = form.headingLevel()
    code = form.hasProperty(QTextFormat.Property.BlockCodeFence)
    form.setTopMargin({2: 22, 3: 16}.get(level, 0))
    compact = code or cursor.currentTable() or cursor.currentList()
    form.setBottomMargin(4 if compact else 10)
    form.setLineHeight(130, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
    if code:
        form.setLineHeight(0, QTextBlockFormat.LineHeightTypes.SingleHeight.value)
        last = (
            not cursor.block().next().blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence)
        )
        form.setBottomMargin(14 if last else 0)
        form.setNonBreakableLines(False)
    cursor.setBlockFormat(form)
    if level:
        cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
        words = cursor.charFormat()
        words.setFont(theme().font("title" if level == 1 else "heading"))
        cursor.setCharFormat(words)
        cursor.clearSelection()
    elif code:
        words = cursor.charFormat()
        words.setFont(theme().font("mono"))
        cursor.setBlockCharFormat(words)  # the height of empty lines
        cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
        cursor.setCharFormat(words)
        cursor.clearSelection()


def _frame_code(document: QTextDocument) -> None:
    """Draw a background behind each fenced code block, from the last to the first."""
    ranges: list[tuple[int, int]] = []
    block = document.begin()
    while block.isValid():
        if block.blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence):
            end = block.position() + block.length() - 1
            if ranges and ranges[-1][1] + 1 == block.position():
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((block.position(), end))
        block = block.next()
    form = QTextFrameFormat()
    form.setBackground(theme().color("chip"))
    form.setPadding(10)
    for start, end in reversed(ranges):
        cursor = QTextCursor(document)
        cursor.setPosition(start)
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        cursor.insertFrame(form)


def _dress_table(table: QTextTable) -> None:
    form = table.format()
    form.setBorder(0)
    form.setCellPadding(6)
    form.setCellSpacing(0)
    form.setBottomMargin(16)
    form.setBorderCollapse(True)
    table.setFormat(form)
    for row in range(table.rows()):
        for column in range(table.columns()):
            _underline(table.cellAt(row, column), "border-strong" if row == 0 else "border")


def _underline(cell: QTextTableCell, tone: str) -> None:
    form = cell.format().toTableCellFormat()
    form.setBottomBorder(1)
    form.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
    form.setBottomBorderBrush(theme().color(tone))
    form.setPadding(6)
    cell.setFormat(form)


def _collapsed(cursor: QTextCursor) -> QTextCursor:
    """Return a cursor at the start of the selection."""
    at = QTextCursor(cursor)
    at.setPosition(cursor.selectionStart())
    return at
