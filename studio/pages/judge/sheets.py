"""Sheets of the Judge page: disagreements, comparison of judges, suggested rubric."""

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QWidget

from engine.protocol.records.judging import Disagreement, Suggestion
from engine.protocol.records.labels import Agreement
from studio.models.rows import RowsModel
from studio.store.projects import rubric
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.cards.card import Card
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

MOST_SHOWN = 30


class DisagreementSheet(Sheet):
    """Sheet with pairs that the judge orders differently from the labels, largest gap first."""

    group_wanted = Signal(str, int, int)

    def __init__(self, host: QWidget) -> None:
        super().__init__("Disagreements between you and the judge", host)
        self._cards: list[QWidget] = []

    def show_cases(self, cases: Sequence[Disagreement]) -> None:
        for card in self._cards:
            card.deleteLater()
        self._cards = [self._card(case) for case in cases[:MOST_SHOWN]]
        for place, card in enumerate(self._cards):
            self.body.insertWidget(place, card)
        self.body.addStretch(1)

    def _card(self, case: Disagreement) -> QWidget:
        card = Card(case.title[:48], f"step {case.step}, group {case.group + 1}")
        you = f"You prefer trajectory {case.better + 1} over trajectory {case.worse + 1}."
        judge = (
            f"The judge scores trajectory {case.worse + 1} at "
            f"{formatting.number(case.worse_score)} and trajectory {case.better + 1} at "
            f"{formatting.number(case.better_score)}."
        )
        add(
            card.body,
            Text(you, "label", 500, "human", wrap=True),
            Text(judge, "label", 400, "judge", wrap=True),
        )
        for words, who in ((case.why, "You"), (case.reason, "Judge")):
            if words:
                reason = f"{who}: {words[:400]}"
                card.body.addWidget(Text(reason, "caption", 400, "muted", wrap=True))
        line = QHBoxLayout()
        open_it = Button("Open the group", "quiet", icon="git-fork", height=24)
        open_it.clicked.connect(lambda: self.group_wanted.emit(case.split, case.step, case.group))
        add(line, open_it, STRETCH)
        card.body.addLayout(line)
        return card


class JudgeTableModel(RowsModel[Agreement]):
    """Table model with one row per judge and rubric."""

    columns = ("Judge", "Rubric", "τ", "Flips", "Cost")
    right = (2, 3, 4)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._words_of: Callable[[str], str] = str

    def show_rows(self, rows: Sequence[Agreement], words_of: Callable[[str], str]) -> None:
        """Show one row per judge and rubric version. `words_of`: rubric version → title."""
        self._words_of = words_of
        self.set_rows(rows)

    def cell(self, row: Agreement, column: int, role: int) -> Any:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return self._words(row)[column]
        return None

    def _words(self, row: Agreement) -> tuple[str, ...]:
        tau = "–" if row.tau is None else f"{row.tau.mean:.2f}"
        flips = "–" if row.flips is None else f"{row.flips:.0%}"
        rubric_words = self._words_of(row.rubric)
        return row.judge.rpartition("/")[2], rubric_words, tau, flips, f"${row.usd:.2f}"


class ComparisonSheet(Sheet):
    """Sheet that compares all judges used in this run."""

    def __init__(self, host: QWidget) -> None:
        super().__init__("Compare judges", host)
        self._model = JudgeTableModel(self)
        table = Table("Judges")
        table.setModel(self._model)
        for column, width in enumerate((None, 84, 64, 68, 76)):
            table.set_column(column, width, "text" if column < 2 else "number")
        self.body.addWidget(table, 1)

    def show_rows(self, rows: Sequence[Agreement], words_of: Callable[[str], str]) -> None:
        """Show one row per judge and rubric version. `words_of`: rubric version → title."""
        self._model.show_rows(rows, words_of)


class SuggestionSheet(Sheet):
    """Sheet with a suggested rubric as a diff; applied only on request."""

    taken = Signal(str)

    def __init__(self, host: QWidget) -> None:
        super().__init__("Suggested rubric changes", host)
        self._source = ""
        self._words = Text("", "label", 400, "muted", wrap=True)
        self._text = QPlainTextEdit()
        self._text.setReadOnly(True)
        self._text.setFont(theme().font("mono-small"))
        self._text.setMinimumHeight(360)
        self._text.setAccessibleName("Suggested rubric, as a diff")
        self._take = Button("Use as draft", "primary", icon="check")
        self._take.clicked.connect(self._accept)
        column = vbox(self._words, (self._text, 1), spacing=8)
        self.body.addLayout(column)
        add(self.foot, STRETCH, self._take)

    def show_suggestion(self, found: Suggestion, now: str) -> None:
        """Show a suggested rubric as a diff to the current text `now`, or why there is none."""
        self._source = found.source
        self._take.setEnabled(bool(found.source))
        cases = formatting.plural(found.cases, "disagreement")
        if found.source:
            self._words.set_words(
                f"From {cases} · ${found.usd:.4f}. Preview the rubric before you save it."
            )
        elif found.problem is not None:
            self._words.set_words(f"{found.problem.message} {found.problem.hint}")
        elif not found.cases:
            self._words.set_words(
                "No disagreements found yet. Re-judge stored groups with this rubric first."
            )
        else:
            self._words.set_words("The judge made no usable suggestion.")
        lines = [f"{sign} {line}" for sign, line in rubric.diff(now, found.source)]
        self._text.setPlainText("\n".join(lines) if found.source else "")

    def _accept(self) -> None:
        self.taken.emit(self._source)
        self.close_sheet()
