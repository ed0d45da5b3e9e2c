"""Plain text editor for project files: line numbers and marks of changed lines."""

from collections.abc import Collection

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QSyntaxHighlighter,
    QTextBlock,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit, QWidget

from studio.theme.theme import theme
from studio.widgets.painting import paint

GUTTER_PX = 44
MARK_PX = 3


class CodeEditor(QPlainTextEdit):
    """Editor: `CodeEditor("rubric.md")`, then `set_text`, `set_changed({20, 21})`."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._changed: frozenset[int] = frozenset()
        self.setAccessibleName(name)
        self.setFont(theme().font("mono"))
        self.setTabChangesFocus(True)
        self.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.setProperty("bare", True)
        self._gutter = _Gutter(self)
        self.setViewportMargins(GUTTER_PX, 8, 8, 0)
        self.updateRequest.connect(self._scrolled)
        self.blockCountChanged.connect(lambda _: self._gutter.update())
        theme().changed.connect(self._restyle)

    def set_text(self, text: str) -> None:
        """Replace the text; undo restores the previous one."""
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.insertText(text)
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def text(self) -> str:
        return self.toPlainText()

    def set_changed(self, lines: Collection[int]) -> None:
        """Mark these lines (from 0) as changed, in the gutter."""
        self._changed = frozenset(lines)
        self._restyle()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        area = self.contentsRect()
        self._gutter.setGeometry(QRect(area.left(), area.top(), GUTTER_PX, area.height()))

    def paint_gutter(self, painter: QPainter, area: QRect) -> None:
        """Draw the numbers of the visible lines, and marks at the changed ones."""
        block = self.firstVisibleBlock()
        top = self.blockBoundingGeometry(block).translated(self.contentOffset()).top() + 8
        while block.isValid() and top <= area.bottom():
            height = self.blockBoundingRect(block).height()
            row = QRectF(0, top, GUTTER_PX - 10, self.fontMetrics().height())
            tone = "muted" if block.blockNumber() in self._changed else "ghost"
            number = str(block.blockNumber() + 1)
            paint.text(painter, row, number, tone, "mono-small", align=paint.RIGHT)
            if block.blockNumber() in self._changed:
                painter.fillRect(QRectF(0, top, MARK_PX, height), theme().color("accent"))
            top += height
            block = block.next()

    def _restyle(self) -> None:
        self.setExtraSelections(
            [self._tinted(self.document().findBlockByNumber(line)) for line in self._changed]
        )
        self._gutter.update()

    def _tinted(self, block: QTextBlock) -> QTextEdit.ExtraSelection:
        selection = QTextEdit.ExtraSelection()
        selection.format.setBackground(theme().color("accent-soft"))  # type: ignore[attr-defined]
        selection.format.setProperty(QTextFormat.Property.FullWidthSelection, True)  # type: ignore[attr-defined]
        selection.cursor = QTextCursor(block)  # type: ignore[attr-defined]
        return selection

    def _scrolled(self, area: QRect, by: int) -> None:
        if by:
            self._gutter.scroll(0, by)
        self._gutter.update()


class _Gutter(QWidget):
    """Gutter next to the text; drawn by the editor."""

    def __init__(self, editor: CodeEditor) -> None:
        super().__init__(editor)
        self._editor = editor
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def sizeHint(self) -> QSize:
        return QSize(GUTTER_PX, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            self._editor.paint_gutter(painter, self.rect())


class MarkdownColours(QSyntaxHighlighter):
    """Markdown highlighting: headings in the judge's colour, front matter as keys and numbers."""

    def __init__(self, document: QTextDocument) -> None:
        super().__init__(document)
        theme().changed.connect(self.rehighlight)

    def highlightBlock(self, text: str) -> None:
        """Highlight one line. Block state 1: inside the front matter; 2: after it."""
        before = self.previousBlockState()
        fence = text.strip() == "---"
        first = self.currentBlock().blockNumber() == 0
        inside = (first and fence) or before == 1
        self.setCurrentBlockState(1 if inside and (first or not fence) else 2)
        if inside:
            self._front(text, fence)
        elif text.startswith("#"):
            self.setFormat(0, len(text), theme().color("judge"))

    def _front(self, text: str, fence: bool) -> None:
        if fence:
            self.setFormat(0, len(text), theme().color("faint"))
            return
        key, colon, value = text.partition(":")
        self.setFormat(0, len(key) + len(colon), theme().color("muted"))
        try:
            float(value)
        except ValueError:
            return
        self.setFormat(len(key) + 1, len(value), theme().color("human"))
