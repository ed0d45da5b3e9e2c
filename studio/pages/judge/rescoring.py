"""Preview of a rubric: ranks of stored groups before and after the change."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QScrollArea, QWidget

from engine.protocol.records.judging import Tried
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.layouts import add, hbox
from studio.widgets.tables.slope_chart import HEIGHT, Slope, SlopeChart, Slopes, ranks
from studio.widgets.text.text import Text


class TrialCard(Card):
    """Card with the preview: `show_tried(…)`. Emits `group_opened(split, step, group)` on a
    click."""

    group_opened = Signal(str, int, int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Preview", padding=0, parent=parent)
        self._row = hbox(spacing=0)
        inside = QWidget()
        inside.setProperty("transparent", True)
        inside.setLayout(self._row)
        self._area = QScrollArea()
        self._area.setWidgetResizable(True)
        self._area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.setWidget(inside)
        self._area.setFixedHeight(HEIGHT + 14)
        self._nothing = Text(
            "Re-judge stored groups with this rubric to see rank changes before a run uses it.",
            "label",
            400,
            "muted",
            wrap=True,
        )
        self._nothing.setContentsMargins(12, 0, 12, 12)
        add(self.body, self._nothing, self._area)
        self._area.hide()
        assert self.header is not None
        self._legend = [Text("— moves up", "caption", 500, "accent")]
        self._legend.append(Text("— moves down", "caption", 500, "bad"))
        for words in self._legend:
            self.header.add_right(words)
            words.hide()

    def show_tried(self, found: Sequence[Tried], left: str, right: str) -> None:
        """Show re-judged groups, largest rank change first; `left`, `right`: titles of the rubric
        versions before and after."""
        while (item := self._row.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.deleteLater()
        ordered = sorted(found, key=lambda one: -_change(one))
        for one in ordered:
            chart = SlopeChart(slopes_of(one, left, right))
            chart.opened.connect(
                lambda one=one: self.group_opened.emit(one.split, one.step, one.group)
            )
            self._row.addWidget(chart)
        self._nothing.setVisible(not found)
        self._area.setVisible(bool(found))
        for words in self._legend:
            words.setVisible(bool(found))
        assert self.header is not None
        moved = sum(_change(one) > 0 for one in found)
        summary = f"{left} vs. {right} · ranking changes in {moved} of {len(found)} groups"
        self.header.set_words(summary if found else "")


def slopes_of(one: Tried, left: str, right: str) -> Slopes:
    """Chart data of a re-judged group: scores before and after, with rubric versions titled `left`
    and `right`."""
    names = sorted(one.indexes, key=lambda name: one.indexes[name])
    siblings = tuple(
        Slope(one.indexes[name] + 1, one.before.get(name), one.after.get(name)) for name in names
    )
    obeyed, tone = "", "faint"
    if one.problem is not None:
        obeyed, tone = f"unscored · {one.problem.message}", "warn"
    elif one.pairs:
        pairs = formatting.plural(one.pairs, "labelled pair")
        obeyed = f"{one.obeyed} of {pairs} ranked like your labels"
        tone = "good" if one.obeyed == one.pairs else "warn"
    return Slopes(one.title, left, right, siblings, what_happened(siblings), obeyed, tone)


def what_happened(siblings: Sequence[Slope]) -> str:
    """Describe the trajectory whose rank changed most: "3 rises from 4th to 1st"."""
    befores, afters = ranks([s.before for s in siblings]), ranks([s.after for s in siblings])
    moves = [
        (b - a, s.number, b, a)
        for s, b, a in zip(siblings, befores, afters, strict=True)
        if a is not None and b is not None and a != b and s.has_moved
    ]
    if not moves:
        return "Same order"
    if len({a for a in afters if a is not None}) == 1:
        return "All tied"
    by, number, was, now = max(moves, key=lambda move: abs(move[0]))
    verb = "rises" if by > 0 else "falls"
    return (
        f"{number} {verb} from {formatting.ordinal(round(was))} to {formatting.ordinal(round(now))}"
    )


def _change(one: Tried) -> float:
    """Return the sum of the rank changes in a group."""
    names = list(one.indexes)
    befores = ranks([one.before.get(n) for n in names])
    afters = ranks([one.after.get(n) for n in names])
    return sum(
        abs(b - a) for b, a in zip(befores, afters, strict=True) if a is not None and b is not None
    )
