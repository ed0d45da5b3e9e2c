"""Comparison card: differences between models, with confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.records.comparison import EvaluationResult, Standing
from engine.protocol.records.runs import Interval as Measured
from studio.models.rows import RowsModel
from studio.pages.checkpoints.rows import Contender
from studio.pages.page import scrolled
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.charts.legend import Entry, Legend
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.interval_axis import Interval
from studio.widgets.tables.interval_chart import TagChart, TagRow
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

TOKENS = ("muted", "plot-1", "plot-3", "plot-4")
MOST_TAGS = 6
ROW_PX = 28


class FiguresModel(RowsModel[Standing]):
    """Table of quality, speed and cost per model."""

    columns = ("", "Mean", "Median", "Tokens", "Cost per 1,000", "Unscored")
    right = range(1, 6)

    def cell(self, row: Standing, column: int, role: int) -> Any:
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return None
        dollars = "–" if row.usd_per_1000 is None else f"${row.usd_per_1000:,.2f}"
        return (
            row.name,
            formatting.number(row.reward.mean if row.reward else None),
            formatting.duration(row.latency_median_s),
            formatting.number(row.tokens_mean, 0),
            dollars,
            formatting.count(row.unscored) if row.unscored else "",
        )[column]


class CompareCard(Card):
    """Card with the comparison: `show_tested(contenders)`, or `show_evaluated(result)` after an
    evaluation."""

    attempts_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Compare", " ", padding=0, parent=parent)
        self._legend, self._chart = Legend(), TagChart()
        self._words = vbox(spacing=4)
        self._lines: list[Text] = []
        self._model = FiguresModel(self)
        self._table = Table("Results", row_px=ROW_PX)
        self._table.setModel(self._model)
        self._table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._table.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        for column, width in enumerate((None, 64, 76, 76, 116, 90)):
            self._table.set_column(column, width, "text" if column == 0 else "figure")
        self._open = Button("Open the trajectories", "quiet", icon="git-fork", height=24)
        self._open.clicked.connect(self.attempts_wanted)
        self.export = Button("Export for Inspect", "quiet", icon="upload", height=24)
        set_tip(self.export, "Write the evaluation as logs that Inspect View opens.")
        assert self.header is not None
        self.header.add_right(self._legend)
        inside = QWidget()
        self._words.setContentsMargins(12, 0, 12, 0)
        rows = vbox(
            self._words,
            self._chart,
            self._table,
            parent=inside,
            margins=(0, 4, 0, 12),  # cells and chart have their own padding, that of the header
            spacing=10,
        )
        line = hbox(self._open, self.export, STRETCH, margins=(4, 0, 12, 0))
        add(rows, line, STRETCH)
        self.body.addWidget(scrolled(inside))

    def show_evaluated(self, result: EvaluationResult, words: Mapping[str, str]) -> None:
        """Show evaluation results, paired by scenario; `words`: model name → title on the page."""
        result = _worded(result, words)
        names = [one.name for one in result.standings]
        self._title(names)
        rows = [TagRow(f"all {result.scenarios}", _intervals(result.standings), strong=True)]
        rows += [TagRow(tag.tag, _intervals(tag.standings)) for tag in result.tags[:MOST_TAGS]]
        self._chart.set_rows(rows, *_ends(rows))
        sentences = [_verdict(one) for one in result.standings[1:]]
        if result.done < result.total:
            sentences.insert(0, (f"{result.done} of {result.total} rollouts so far", "muted"))
        if result.precision:
            sentences.append((f"Computed in {result.precision}", "muted"))
        self._say(sentences)
        self._model.set_rows(result.standings)
        self._fit_table(result.standings)
        self._open.show()
        self.export.show()

    def show_tested(self, chosen: Sequence[Contender]) -> None:
        """Show validation scores or win rates from training. They are unpaired, so no model is
        called better."""
        compared = any(one.compared for one in chosen)
        self._title([one.words for one in chosen])
        tested = tuple(
            _interval(one.validation, token, one.words)
            for one, token in zip(chosen, TOKENS, strict=False)
        )
        title = "win rate" if compared else "validation"
        rows = [TagRow(title, tested, strong=True)] if any(tested) else []
        self._chart.set_rows(rows, *_ends(rows))
        words = (
            f"{'Win rates against the baseline' if compared else 'These scores'} were measured "
            "during training. “Evaluate” compares the models on the same scenarios and tests the "
            "differences for significance."
            if chosen
            else "Select up to four rows with Space. The first is the reference for the others."
        )
        self._say([(words, "muted")])
        self._fit_table([])
        self._open.hide()
        self.export.hide()

    def _title(self, names: Sequence[str]) -> None:
        assert self.header is not None
        title = names[0] if names else "Compare"
        if len(names) > 1:
            title = f"{names[0]} vs. {names[1] if len(names) == 2 else len(names) - 1}"
        self.header.title.set_words(title[:1].upper() + title[1:])
        pairs = zip(names, TOKENS, strict=False)
        self._legend.set_entries([Entry(name, token, "line") for name, token in pairs])

    def _say(self, lines: Sequence[tuple[str, str]]) -> None:
        for old in self._lines:
            old.deleteLater()
        self._lines = [Text(words, "label", 400, tone, wrap=True) for words, tone in lines]
        add(self._words, *self._lines)

    def _fit_table(self, rows: Sequence[Standing]) -> None:
        """Fit the table to its rows and hide empty columns."""
        self._table.setVisible(bool(rows))
        self._table.setFixedHeight(28 + ROW_PX * len(rows) + 2)
        self._table.setColumnHidden(4, all(one.usd_per_1000 is None for one in rows))
        self._table.setColumnHidden(5, not any(one.unscored for one in rows))


def _intervals(standings: Sequence[Standing]) -> tuple[Interval | None, ...]:
    """Build intervals; models without a significant difference are drawn faint."""
    found = []
    for one, token in zip(standings, TOKENS, strict=False):
        unsure = one.versus is not None and one.versus.word == "no difference shown"
        found.append(_interval(one.reward, "faint" if unsure else token, one.name))
    return tuple(found)


def _interval(value: Measured | None, token: str, words: str) -> Interval | None:
    if value is None:
        return None
    mark = "circle" if token == TOKENS[0] else "diamond"
    return Interval(value.mean, value.low, value.high, token, mark, words)


def _worded(result: EvaluationResult, words: Mapping[str, str]) -> EvaluationResult:
    """Replace model names by the titles used on the page."""

    def named(one: Standing) -> Standing:
        versus = one.versus
        if versus is not None:
            against = words.get(versus.against, versus.against)
            versus = versus.model_copy(update={"against": against})
        return one.model_copy(update={"name": words.get(one.name, one.name), "versus": versus})

    return result.model_copy(update={"standings": [named(one) for one in result.standings]})


def _ends(rows: Sequence[TagRow]) -> tuple[float, float]:
    known = [one for row in rows for one in row.intervals if one is not None]
    lows = [one.low for one in known if one.low is not None]
    highs = [one.high for one in known if one.high is not None]
    low, high = min([0.0, *lows]), max([1.0, *highs])
    return math.floor(low * 5) / 5, math.ceil(high * 5) / 5


def _verdict(one: Standing) -> tuple[str, str]:
    """Describe one model in a sentence; "better" only for significant differences."""
    versus = one.versus
    if versus is None or versus.difference is None:
        return f"{one.name}: no scenario is scored for both models yet.", "muted"
    d = versus.difference
    span = (
        f"{formatting.signed(d.mean)} ({formatting.signed(d.low)} to {formatting.signed(d.high)})"
    )
    chance = "" if versus.p is None else f" · p {_p(versus.p)}"
    counted = f"{versus.wins} won, {versus.ties} tied, {versus.losses} lost"
    tone = {"better": "good", "worse": "bad"}.get(versus.word, "muted")
    verb = {"better": "is better than", "worse": "is worse than"}.get(versus.word)
    words = (
        f"{one.name} {verb} {versus.against}"
        if verb
        else (f"{one.name}: no significant difference")
    )
    return f"{words}, {span}{chance} · {counted}", tone


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
