"""Agreement of the judge with human labels, and consistency of both."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.records.labels import Agreement
from engine.protocol.records.runs import Interval as Measured
from studio.store.projects.grading import WANTED
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.facts import Fact, FactRow
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.tables.interval_axis import Interval, IntervalAxis
from studio.widgets.text.text import Text

LEAST_GROUPS = 5
"""Minimum number of labelled groups for showing the coefficient."""
LEAST_REPEATS = 3
"""Minimum number of groups graded twice for showing the person's own consistency."""


class AgreementCard(Card):
    """Card with the agreement of judge and labels, per rubric version."""

    disagreements_wanted = Signal()
    suggestion_wanted = Signal()
    comparison_wanted = Signal()
    annotators_wanted = Signal()
    export_wanted = Signal()
    import_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Agreement with your labels", parent=parent)
        self._figure = Text("–", "display", 600)
        self._under = Text("", "label", 400, "muted", wrap=True)
        self._axis = IntervalAxis(0.0, 1.0, words_px=96)
        self._ceiling = Text("", "label", 400, "human", wrap=True)
        self._rest = Text("", "label", 400, "muted", wrap=True)
        self._show = Button("Show disagreements", "outlined", height=28)
        self._suggest = Button("Suggest rubric changes", "outlined", icon="sparkles", height=28)
        self._compare = Button("Compare judges", "quiet", height=28)
        self._people = IconButton("user-round", "Annotators and their agreement")
        self._save = IconButton("download", "Export labels…")
        self._load = IconButton("import", "Import labels…")
        self._facts = FactRow()
        self._lay_out()
        self._show.clicked.connect(self.disagreements_wanted)
        self._suggest.clicked.connect(self.suggestion_wanted)
        self._compare.clicked.connect(self.comparison_wanted)
        self._people.clicked.connect(self.annotators_wanted)
        self._save.clicked.connect(self.export_wanted)
        self._load.clicked.connect(self.import_wanted)

    def _lay_out(self) -> None:
        left = vbox(spacing=4)
        line = hbox(self._figure, (self._under, 1), spacing=10)
        add(left, line, self._axis, STRETCH)
        right = vbox(self._ceiling, self._rest, spacing=8)
        add(right, STRETCH)
        both = hbox((left, 1), (right, 1), spacing=16)
        buttons = hbox(self._show, self._suggest, STRETCH, spacing=8)
        add(self.body, both, buttons, self._facts)
        assert self.header is not None
        for part in (self._compare, self._people, self._save, self._load):
            self.header.add_right(part)

    def set_readable(self, readable: bool) -> None:
        """Enable annotators, export and import of labels: there is a run that can be read."""
        self._people.setEnabled(readable)
        self._save.setEnabled(readable)
        self._load.setEnabled(readable)

    def show_rows(
        self,
        rows: Sequence[Agreement],
        words_of: Callable[[str], str],
        disagreements: int,
        canaries: Sequence[bool] = (),
    ) -> None:
        """Show how judge versions agree with labels, newest first. `words_of`: version → title;
        `disagreements`: number of cases where the judge contradicts a label; `canaries`: for each
        made-up test trajectory, whether the judge saw through it."""
        now = rows[0] if rows else None
        assert self.header is not None
        self._compare.setVisible(len(rows) > 1)
        self._suggest.setVisible(disagreements > 0)
        self._show.setVisible(disagreements > 0)
        self._show.set_words(formatting.plural(disagreements, "disagreement"))
        if now is None:
            self.header.set_words("no group judged yet")
        else:
            groups_text = formatting.plural(now.groups, "labelled group")
            self.header.set_words(f"{groups_text}, {formatting.plural(now.pairs, 'pair')}")
        self._show_tau(now)
        shown = [row for row in reversed(rows[:2]) if row.tau]
        self._axis.set_intervals(
            [
                Interval(
                    row.tau.mean,
                    max(0.0, row.tau.low),
                    row.tau.high,
                    "judge" if row is now else "muted",
                    words=words_of(row.rubric),
                )
                for row in shown
                if row.tau
            ]
        )
        self._axis.setVisible(bool(shown))
        own = _consistency(now)
        self._axis.set_zone(min(1.0, own.mean) if own else None)
        self._say_ceiling(now)
        self._facts.set_facts(_facts(now, canaries))

    def _show_tau(self, now: Agreement | None) -> None:
        groups = now.groups if now else 0
        if now is None or now.tau is None or groups < LEAST_GROUPS:
            self._figure.set_words("–")
            left = LEAST_GROUPS - groups
            self._under.set_words(
                f"Label {formatting.plural(left, 'more group')} to measure agreement."
            )
            return
        tau = now.tau
        self._figure.set_words(formatting.number(tau.mean))
        share = f" · {now.accuracy:.0%} of pairs agree" if now.accuracy is not None else ""
        thin = "; the interval is wide because few groups are labelled" if groups < WANTED else ""
        self._under.set_words(f"Kendall τ, 95 % CI {tau.low:.2f} to {tau.high:.2f}{thin}{share}")

    def _say_ceiling(self, now: Agreement | None) -> None:
        own = _consistency(now)
        self._ceiling.setVisible(own is not None)
        if own is None:
            left = LEAST_REPEATS - (now.repeats if now else 0)
            groups = formatting.plural(left, "group" if left == LEAST_REPEATS else "more group")
            self._ceiling.set_words("")
            self._rest.set_words(
                f"Grade {groups} blind, twice each. Your own consistency is the ceiling for any "
                "judge."
            )
            return
        groups = formatting.plural(now.repeats if now else 0, "group")
        self._ceiling.set_words(f"Your own consistency is {own.mean:.2f} ({groups}).")
        self._rest.set_words("A judge cannot agree with you more than that.")


def _consistency(now: Agreement | None) -> Measured | None:
    """The person's own consistency, if enough groups were graded twice."""
    return now.self_consistency if now and now.repeats >= LEAST_REPEATS else None


def _facts(row: Agreement | None, canaries: Sequence[bool]) -> list[Fact]:
    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"

    length = row.length if row else None
    return [
        Fact("Pairs that flip between passes", share(row.flips if row else None)),
        Fact(
            "Agreement between passes",
            "–" if row is None or row.stability is None else f"τ {row.stability:.2f}",
        ),
        Fact("Correlation of score and length", "–" if length is None else f"τ {length:+.2f}"),
        Fact("Canaries detected", f"{sum(canaries)} / {len(canaries)}" if canaries else "–"),
    ]
