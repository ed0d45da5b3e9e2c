"""The help pages of `resources/help`, in a dialog: titles on the left, the page on the right."""

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QImage, QTextBlockFormat, QTextCursor, QTextTable
from PySide6.QtWidgets import QDialog, QHBoxLayout, QListWidget, QTextBrowser, QWidget

from engine.protocol.records.art_names import NAMES
from engine.protocol.records.metrics import METRICS, Metric
from studio.runtime.paths import resource
from studio.theme.theme import theme

LIST_PX = 208


class GuideBrowser(QTextBrowser):
    """Shows our own Markdown, and nothing else: no links are followed, nothing is loaded."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setOpenLinks(False)
        self.setAccessibleName("Help page")
        self.document().setDocumentMargin(24)
        self.setFont(theme().font("body"))

    def show_page(self, markdown: str) -> None:
        """Our own text, in our own type and spacing."""
        self.setMarkdown(markdown)
        cursor = QTextCursor(self.document())
        while True:
            _dress_block(cursor)
            if not cursor.movePosition(QTextCursor.MoveOperation.NextBlock):
                break
        for frame in self.document().rootFrame().childFrames():
            if isinstance(frame, QTextTable):
                _dress_table(frame)
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def loadResource(self, kind: int, name: QUrl | str) -> QImage:
        return QImage(1, 1, QImage.Format.Format_ARGB32)


class HelpDialog(QDialog):
    """`HelpDialog(window).open()`."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Help")
        self.resize(880, 640)
        self._pages = help_pages()
        self._browser = GuideBrowser(self)
        titles = QListWidget()
        titles.setAccessibleName("Help pages")
        titles.setFixedWidth(LIST_PX)
        titles.setContentsMargins(8, 16, 8, 8)
        titles.setSpacing(4)
        titles.addItems([page.partition("\n")[0].removeprefix("# ") for page in self._pages])
        titles.currentRowChanged.connect(self._show)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(titles)
        row.addWidget(self._browser, 1)
        titles.setCurrentRow(0)

    def _show(self, number: int) -> None:
        self._browser.show_page(self._pages[number])


def help_pages() -> list[str]:
    """All pages as Markdown; the metrics' tables are made from where they are documented."""
    files = sorted(resource("help").glob("*.md"))
    tables = {"{{metrics}}": metrics_tables(), "{{names}}": names_table()}
    texts = [file.read_text("utf-8") for file in files]
    for mark, table in tables.items():
        texts = [text.replace(mark, table) for text in texts]
    return texts


def names_table() -> str:
    """What ART calls our metrics."""
    rows = ["| ART | here |", "|---|---|"]
    for name in NAMES:
        ours = " and ".join(name.ours).replace("*", "NAME")
        how = f": {name.how}" if name.how else ""
        rows.append(f"| {name.art.replace('*', 'NAME')} | {ours}{how} |")
    return "\n".join(rows)


def metrics_tables() -> str:
    """A table for each group of metrics: name, unit, meaning and what to look out for."""
    tables = []
    for group in dict.fromkeys(metric.group for metric in METRICS):
        rows = [_row(metric) for metric in METRICS if metric.group == group]
        tables.append(
            "\n".join([f"## {group}\n", "| name | unit | meaning |", "|---|---|---|", *rows])
        )
    return "\n\n".join(tables)


def _row(metric: Metric) -> str:
    name = metric.key.replace("*", "NAME")
    worry = f" *Look closer: {metric.worry}.*" if metric.worry else ""
    return f"| {name} | {metric.unit} | {metric.words}{worry} |"


def _dress_block(cursor: QTextCursor) -> None:
    level = cursor.blockFormat().headingLevel()
    form = cursor.blockFormat()
    form.setTopMargin(20 if level == 2 else 0)
    form.setBottomMargin(4 if cursor.currentTable() or cursor.currentList() else 10)
    form.setLineHeight(130, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
    cursor.setBlockFormat(form)
    if level:
        cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
        words = cursor.charFormat()
        words.setFont(theme().font("title" if level == 1 else "heading"))
        cursor.setCharFormat(words)
        cursor.clearSelection()


def _dress_table(table: QTextTable) -> None:
    form = table.format()
    form.setBorder(0)
    form.setCellPadding(6)
    form.setCellSpacing(0)
    form.setBottomMargin(16)
    table.setFormat(form)
