"""Evidence of a trajectory: verdicts with verified quotes, reward, labels, raw exchange. Each tab
is built when it is first shown."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from engine.protocol.records.judging import Call, Verdict, chief_verdict
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Trajectory
from studio.pages.page import scrolled
from studio.pages.trajectories.labels.label_history import label_entry
from studio.pages.trajectories.reader.raw_view import RawView
from studio.pages.trajectories.reader.transcript_rows import Weights, parts_of
from studio.pages.trajectories.reader.verdict_view import VerdictView
from studio.pages.trajectories.reader.waterfall import Waterfall
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.tables.reward_bar import PartsBar
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

TABS = ("Evidence", "Reward", "Labels", "Raw", "Calls")
LABELS_MOST = 100


@dataclass(frozen=True)
class Evidence:
    """Data shown beside the transcript of a trajectory."""

    record: Trajectory
    verdicts: Sequence[Verdict] = ()
    labels: Sequence[Label] = ()
    """Labels of the group, including undone ones, oldest first."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Numbers in the group (from 1) by trajectory id."""
    weights: Weights = field(default_factory=dict)
    largest: float = 0.0
    """Largest absolute advantage of the group."""


class EvidencePanel(QWidget):
    """Evidence panel. Emits `passage_wanted(quote)` to scroll the transcript to a quote,
    `row_wanted(row)` to scroll it to a row, and `call_wanted(key)` to load a judge exchange, which
    `show_call` displays."""

    passage_wanted = Signal(str)
    row_wanted = Signal(int)
    call_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._evidence: Evidence | None = None
        self._stale = set(range(len(TABS)))
        self.tabs = Segmented(TABS, "Evidence")
        self._stack, self._raw = QStackedWidget(), RawView()
        self.calls = Waterfall()
        self._columns: list[QVBoxLayout] = []
        for _ in range(3):
            inside = QWidget()
            column = vbox(parent=inside, margins=(2, 4, 10, 8), spacing=12)
            self._columns.append(column)
            self._stack.addWidget(scrolled(inside))
        self._stack.addWidget(self._raw)
        self._stack.addWidget(self.calls)
        vbox(self.tabs, (self._stack, 1), parent=self, margins=(0, 8, 0, 0), spacing=10)
        self.tabs.chosen.connect(self.show_tab)
        self._raw.call_wanted.connect(self.call_wanted)
        self.calls.row_wanted.connect(self.row_wanted)

    def show_evidence(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._stale = set(range(len(TABS)))
        self.show_tab(self.tabs.index())

    def show_tab(self, tab: int) -> None:
        """Switch to a tab by index: evidence, reward, labels, raw text or calls over time."""
        self.tabs.set_index(tab)
        self._stack.setCurrentIndex(tab)
        if self._evidence is None or tab not in self._stale:
            return
        self._stale.discard(tab)
        if tab == 3:
            self._raw.show_record(self._evidence.record, _calls(self._evidence))
            return
        if tab == 4:
            self.calls.show_record(self._evidence.record)
            return
        column = self._columns[tab]
        _clear(column)
        fill = (self._fill_evidence, self._fill_reward, self._fill_labels)[tab]
        add(column, *fill(self._evidence), STRETCH)

    def show_call(self, call: Call) -> None:
        """Show the messages and reply of a judge call, loaded after the signal `call_wanted`."""
        self._raw.show_call(call)

    def words(self) -> list[str]:
        """Return all texts of the visible tab; used by tests."""
        if self.tabs.index() == 3:
            return [self._raw.text.toPlainText()]
        if self.tabs.index() == 4:
            return self.calls.words()
        inside = self._columns[self.tabs.index()].parentWidget()
        assert inside is not None
        return [
            part.accessibleName() for part in inside.findChildren(QWidget) if not part.isHidden()
        ]

    def _fill_evidence(self, evidence: Evidence) -> list[QWidget]:
        record = evidence.record
        own = [one for one in evidence.verdicts if one.trajectory_id == record.id]
        chief = chief_verdict(record, own)
        parts: list[QWidget] = []
        if record.problem:
            parts.append(Text(plain(str(record.problem)), "label", 400, "warn", wrap=True))
        parts += [self._label_card(one, evidence) for one in _about(evidence) if one.holds()]
        for one in sorted(own, key=lambda verdict: verdict is not chief):
            view = VerdictView(one, one is chief)
            view.passage_wanted.connect(self.passage_wanted)
            parts.append(view)
        if not own:
            words = "No judge has scored this trajectory. Its reward comes from rules alone."
            parts.append(Text(words, "label", 400, "muted", wrap=True))
        return parts

    def _label_card(self, label: Label, evidence: Evidence) -> QWidget:
        card = Card(tone="human")
        card.body.addWidget(label_entry(label, evidence.numbers))
        return card

    def _fill_reward(self, evidence: Evidence) -> list[QWidget]:
        record = evidence.record
        parts = Card("Reward parts")
        bar, sums = PartsBar(), KeyValues(1, mono=True)
        adds = parts_of(record, evidence.weights)
        bar.set_parts(adds)
        rows = [(plain(part.name), formatting.signed(part.value)) for part in adds]
        sums.set_values([*rows, ("reward", formatting.number(record.reward))])
        add(parts.body, bar, sums)
        found: list[QWidget] = [parts]
        if before := record.unlabelled:
            was = Card("Before your label")
            old = KeyValues(1, mono=True)
            old.set_values([("reward", formatting.number(before.reward))])
            was.body.addWidget(old)
            found.append(was)
        if record.metrics:
            metrics = Card("Agent metrics")
            values = KeyValues(1, mono=True)
            shown = list(record.metrics.items())[:60]
            values.set_values([(plain(name[:60]), f"{value:g}") for name, value in shown])
            metrics.body.addWidget(values)
            found.append(metrics)
        return found

    def _fill_labels(self, evidence: Evidence) -> list[QWidget]:
        labels = list(evidence.labels)[-LABELS_MOST:][::-1]
        if not labels:
            words = "No labels for this group. Press ? for the keyboard shortcuts."
            return [Text(words, "label", 400, "muted", wrap=True)]
        return [label_entry(label, evidence.numbers) for label in labels]


def _about(evidence: Evidence) -> list[Label]:
    """Return the labels of the group that mention the trajectory."""
    name = evidence.record.id
    return [
        label
        for label in evidence.labels
        if any(
            word.trajectory_id == name or any(name in layer for layer in word.order)
            for word in label.words
        )
    ]


def _calls(evidence: Evidence) -> list[tuple[str, str]]:
    """Return cache key and display name of each judge exchange about the trajectory."""
    own = [one for one in evidence.verdicts if one.trajectory_id == evidence.record.id]
    many = len(own) > 1
    return [
        (key, f"Judge{f' {number}' if many else ''}, pass {place}")
        for number, verdict in enumerate(own, 1)
        for place, key in enumerate(verdict.calls, 1)
    ]


def _clear(column: QVBoxLayout) -> None:
    while (item := column.takeAt(0)) is not None:
        if (old := item.widget()) is not None:
            old.hide()
            old.deleteLater()
