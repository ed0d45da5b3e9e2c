"""Sheet of the Judge page with the annotators of a run and their agreement."""

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from engine.protocol.records.labels import Annotator, AnnotatorPair, Annotators
from studio.models.rows import RowsModel
from studio.text import formatting
from studio.widgets.cards.sheet import Sheet
from studio.widgets.layouts import add
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

RULE = (
    "A group uses the labels of all annotators, oldest first: where two labels contradict each "
    "other, the later one wins. Blind grading hides the labels of the other annotators."
)
ALONE = (
    "Agreement needs two annotators. Each enters a name under Settings → Labels, then labels "
    "groups that the other labelled: Trajectories → Review queue → Labelled only by other "
    "annotators."
)
HEAD_PX, ROW_PX, MOST_ROWS = 30, 36, 6


class AnnotatorTableModel(RowsModel[Annotator]):
    """Table model with one row per annotator."""

    columns = ("Annotator", "Labels", "Groups", "Blind")
    right = (1, 2, 3)

    def cell(self, row: Annotator, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            numbers = (row.labels, row.groups, row.blind)
            return (_name(row.name), *(formatting.count(number) for number in numbers))[column]
        return None


class AnnotatorPairModel(RowsModel[AnnotatorPair]):
    """Table model with one row per two annotators who labelled the same groups."""

    columns = ("Annotators", "Groups", "Pairs", "τ", "Same order")
    right = (1, 2, 3, 4)

    def cell(self, row: AnnotatorPair, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return (
                f"{_name(row.one)}, {_name(row.other)}",
                formatting.count(row.groups),
                formatting.count(row.pairs),
                _tau(row, full=role == Qt.ItemDataRole.ToolTipRole),
                "–" if row.accuracy is None else f"{row.accuracy:.0%}",
            )[column]
        return None


class AnnotatorSheet(Sheet):
    """Sheet with who labelled the run, and Kendall's τ of each two of them."""

    def __init__(self, host: QWidget) -> None:
        super().__init__("Annotators", host, 480)
        self._people, self._pairs = AnnotatorTableModel(self), AnnotatorPairModel(self)
        self._between = Text("Agreement between annotators", "label", 600)
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._table = _table("Annotators", self._people, (None, 72, 72, 72))
        self._pair_table = _table("Agreement", self._pairs, (None, 64, 56, 56, 92))
        add(self.body, self._table, self._between, self._pair_table, self._words)
        self.body.addStretch(1)

    def show_annotators(self, found: Annotators) -> None:
        """Show annotators and pairs; pairs without a common group are left out."""
        common = [pair for pair in found.pairs if pair.groups]
        self._people.set_rows(found.annotators)
        self._pairs.set_rows(common)
        for table, rows in ((self._table, found.annotators), (self._pair_table, common)):
            table.setFixedHeight(HEAD_PX + ROW_PX * max(1, min(MOST_ROWS, len(rows))))
        for part in (self._between, self._pair_table):
            part.setVisible(bool(common))
        self._words.set_words(RULE if common else ALONE)


def _table(name: str, model: Any, widths: tuple[int | None, ...]) -> Table:
    table = Table(name)
    table.setModel(model)
    for column, width in enumerate(widths):
        table.set_column(column, width, "figure" if column else "text")
    return table


def _name(name: str) -> str:
    return plain(name[:60]) or "unnamed"


def _tau(row: AnnotatorPair, full: bool) -> str:
    if row.tau is None:
        return "–"
    interval = f", 95 % CI {row.tau.low:.2f} to {row.tau.high:.2f}" if full else ""
    return f"{row.tau.mean:.2f}{interval}"
