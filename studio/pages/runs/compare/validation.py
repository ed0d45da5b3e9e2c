"""Validation of the compared runs: intervals, paired differences, and the scenarios."""

import math

from PySide6.QtWidgets import QWidget

from engine.protocol.records.run_table import ComparedRun, RunComparison
from studio.pages.runs.compare.tables import ScenarioModel
from studio.store.runs.chosen_runs import ChosenRuns
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.tables.interval_axis import Interval, IntervalAxis
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text

SCENARIO_PX = 28


class ValidationView(QWidget):
    """Validation of the compared runs: `show_comparison(comparison, chosen)`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._result = Card("Result")
        self._axis_box = vbox()
        self._axis: IntervalAxis | None = None
        self._words = vbox(spacing=6)
        self._lines: list[Text] = []
        add(self._result.body, self._axis_box, 4, self._words)
        self._scenarios = Card("Scenarios", " ", padding=0)
        self._model = ScenarioModel()
        self._table = Table("Scores by scenario", row_px=SCENARIO_PX)
        self._table.setModel(self._model)
        self._scenarios.body.addWidget(self._table)
        self._empty = Text("", "label", 400, "muted", wrap=True)
        column = vbox(self._empty, self._result, (self._scenarios, 1), spacing=12)
        hbox((column, 1), parent=self)
        self.show_words("")

    def show_words(self, words: str) -> None:
        """Show a sentence instead of a comparison: it is loading, or failed; empty: nothing."""
        self._empty.set_words(words)
        self._empty.setVisible(bool(words))
        self._result.setVisible(not words)
        self._scenarios.setVisible(not words)

    def show_comparison(self, found: RunComparison, chosen: ChosenRuns) -> None:
        if not any(one.result for one in found.runs):
            self.show_words("None of these runs has a scored validation yet.")
            return
        self.show_words("")
        assert self._result.header is not None
        assert self._scenarios.header is not None
        kind = (
            "win rate against the run's own baseline" if found.measure == "win_rate" else "reward"
        )
        self._result.header.set_words(f"{found.at} validation, {kind}, with 95 % interval")
        self._show_axis(found, chosen)
        self._say(found)
        names = [one.name for one in found.runs]
        self._scenarios.header.set_words(
            f"{formatting.plural(len(found.scenarios), 'scenario')}, largest difference first"
        )
        self._model.measure = found.measure
        self._model.show(names, found.scenarios)
        for place in range(len(names) + 1):
            self._table.set_column(place, 132 if place else None, "figure" if place else "text")

    def _show_axis(self, found: RunComparison, chosen: ChosenRuns) -> None:
        known = [one.result for one in found.runs if one.result]
        low = min([0.0, *(result.low for result in known)])
        high = max([1.0, *(result.high for result in known)])
        axis = IntervalAxis(
            math.floor(low * 5) / 5, math.ceil(high * 5) / 5, words_px=190, strong=0
        )
        axis.set_intervals(
            [
                Interval(
                    one.result.mean if one.result else math.nan,
                    one.result.low if one.result else None,
                    one.result.high if one.result else None,
                    chosen.token(one.run_id) or "muted",
                    "circle" if place == 0 else "diamond",
                    _axis_words(one),
                )
                for place, one in enumerate(found.runs)
            ]
        )
        if self._axis is not None:
            self._axis_box.removeWidget(self._axis)
            self._axis.deleteLater()
        self._axis = axis
        self._axis_box.addWidget(axis)

    def _say(self, found: RunComparison) -> None:
        lines = [verdict(one, found) for one in found.runs[1:]]
        many = max(one.validations for one in found.runs)
        if found.at == "best" and many > 1:
            lines.append((
                "The best of several validation scores is likely too high. Choose “Last” for a "
                "fair comparison.", "muted",
            ))  # fmt: skip
        for old in self._lines:
            old.deleteLater()
        self._lines = [Text(words, "label", 400, tone, wrap=True) for words, tone in lines]
        add(self._words, *self._lines)


def _axis_words(one: ComparedRun) -> str:
    return f"{one.name}, step {one.step}" if one.step is not None else one.name


def verdict(one: ComparedRun, found: RunComparison) -> tuple[str, str]:
    """Return a sentence that compares a run with the reference run, and its colour tone."""
    first = found.runs[0].name
    if one.result is None:
        return f"{one.name} has no scored validation.", "muted"
    versus = one.versus
    if versus is None or versus.difference is None:
        return f"{one.name} and {first} share no scored scenario.", "muted"
    d = versus.difference
    percents = found.measure == "win_rate"
    words = [_difference(value, percents) for value in (d.mean, d.low, d.high)]
    span = f"{words[0]} ({words[1]} to {words[2]})"
    counted = f"{versus.wins} scenarios better, {versus.ties} equal, {versus.losses} worse"
    unscored = f", {one.unscored} unscored" if one.unscored else ""
    if versus.word == "no difference shown":
        return (
            f"{one.name}: no significant difference from {first}, {span} · {counted}{unscored}",
            "muted",
        )
    tone = "good" if versus.word == "better" else "bad"
    return f"{one.name} is {versus.word} than {first}, {span} · {counted}{unscored}", tone


def _difference(value: float, percents: bool) -> str:
    return f"{formatting.signed(100 * value, 0)} points" if percents else formatting.signed(value)
