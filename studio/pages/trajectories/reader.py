"""The reader: outline, transcript with token tints, and what is known of the attempt."""

import json

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QPlainTextEdit,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from engine.protocol.records import Trajectory
from studio import figures
from studio.pages.page import scrolled
from studio.pages.trajectories.reading import (
    EVEN,
    Heading,
    Weights,
    items_of,
    outline_of,
    parts_of,
    turn_rows,
)
from studio.theme import theme
from studio.widgets.advantage_mark import AdvantageMark
from studio.widgets.buttons import Button
from studio.widgets.card import Card
from studio.widgets.key_values import KeyValues
from studio.widgets.meter import MeterRow
from studio.widgets.segmented import Segmented
from studio.widgets.text import Text
from studio.widgets.transcript import Transcript
from studio.widgets.transcript_items import Item, plain

OUTLINE_PX, EVIDENCE_PX = 216, 320
TINTS = (("Advantage", "advantage"), ("Log-prob", "logprob"), ("Mask", "mask"), ("None", "none"))
RAW_MOST = 200_000


class Reader(QWidget):
    """`show_trajectory(record)`; `tint_chosen(name)`."""

    tint_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tint = Segmented([words for words, _ in TINTS], "Tint tokens by")
        self.transcript = Transcript()
        self._outline, self._evidence = _Outline(), _Evidence()
        self._items: list[Item] = []
        self._build()
        self._tint.chosen.connect(lambda i: self.set_tint(TINTS[i][1], told=True))
        self.transcript.tint_chosen.connect(lambda name: self.set_tint(name, told=True))
        self._outline.row_wanted.connect(self.transcript.focus_row)

    def show_trajectory(self, record: Trajectory, weights: Weights = EVEN) -> None:
        items = self._items = items_of(record, weights=weights)
        self.transcript.set_items(items)
        self._outline.show_outline(record, outline_of(items))
        self._evidence.show_trajectory(record, weights)

    def next_divergence(self, turns: list[int]) -> None:
        """Go to the next of these turns, from 1; after the last to the first."""
        rows = turn_rows(self._items)
        places = [rows[turn - 1] for turn in turns if turn <= len(rows)]
        after = [row for row in places if row > self.transcript.focused_row()]
        if places:
            self.transcript.focus_row((after or places)[0])

    def set_tint(self, name: str, told: bool = False) -> None:
        names = [key for _, key in TINTS]
        if name in names:
            self._tint.set_index(names.index(name))
            self.transcript.set_tint(name)
            if told:
                self.tint_chosen.emit(name)

    def _build(self) -> None:
        bar = QHBoxLayout()
        bar.setContentsMargins(16, 8, 16, 8)
        bar.setSpacing(10)
        bar.addWidget(Text("Tint tokens by", "label", 400, "muted"))
        bar.addWidget(self._tint)
        bar.addStretch(1)
        middle = QVBoxLayout()
        middle.setSpacing(0)
        middle.addLayout(bar)
        middle.addWidget(self.transcript, 1)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(12)
        line.addWidget(self._outline)
        line.addLayout(middle, 1)
        line.addWidget(self._evidence)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._evidence.setVisible(self.width() >= 920)
        self._outline.setVisible(self.width() >= 700)


class _Outline(QWidget):
    """Turns with their calls indented; below, how much of it was trained."""

    row_wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setFixedWidth(OUTLINE_PX)
        self._number = Text("", "title")
        self._advantage = AdvantageMark()
        self._lines = QVBoxLayout()
        self._lines.setSpacing(0)
        self._trained = MeterRow("Trained", "plot-1", words_px=52, figure_px=84)
        self._facts = KeyValues(1)
        head = QHBoxLayout()
        head.setContentsMargins(4, 8, 0, 8)
        head.addWidget(self._number)
        head.addWidget(self._advantage)
        head.addStretch(1)
        lines = QWidget()
        lines_box = QVBoxLayout(lines)
        lines_box.setContentsMargins(0, 0, 0, 0)
        lines_box.addLayout(self._lines)
        lines_box.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(head)
        column.addWidget(_plain_scroll(lines), 1)
        column.addWidget(self._trained)
        column.addWidget(self._facts)

    def show_outline(self, record: Trajectory, headings: list[Heading]) -> None:
        self._number.set_words(f"{record.index + 1} · {figures.number(record.reward)}")
        self._advantage.set_advantage(record.advantage)
        while (item := self._lines.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.deleteLater()
        for heading in headings:
            button = Button(
                f"{'    ' if heading.deep else ''}{heading.words}", "quiet", icon=heading.icon
            )
            button.clicked.connect(lambda _=False, row=heading.row: self.row_wanted.emit(row))
            line = QHBoxLayout()
            line.addWidget(button)
            line.addStretch(1)
            line.addWidget(
                Text(heading.fact, "caption", tone="bad" if heading.fact == "error" else "faint")
            )
            holder = QWidget()
            holder.setLayout(line)
            line.setContentsMargins(0, 0, 4, 0)
            self._lines.addWidget(holder)
        self._show_tokens(record)

    def _show_tokens(self, record: Trajectory) -> None:
        total = sum(len(branch.tokens) for branch in record.branches)
        trained = sum(branch.sampled for branch in record.branches)
        share = trained / total if total else None
        self._trained.set_value(share, f"{trained:,} of {total:,}" if total else figures.ABSENT)
        self._facts.set_values(
            [
                ("Branches", str(len(record.branches))),
                ("Policy", f"after step {record.policy_version}"),
                ("Seed", str(record.seed)),
            ]
        )


class _Evidence(QWidget):
    """Reward and raw record."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedWidth(EVIDENCE_PX)
        self._tabs = Segmented(["Reward", "Output", "Raw"], "Evidence")
        self._stack = QStackedWidget()
        self._parts, self._metrics = KeyValues(1, mono=True), KeyValues(1, mono=True)
        self._why = Text("", "body", tone="warn", wrap=True)
        self._output, self._raw = _raw_text("Output"), _raw_text("Raw record")
        self._tabs.chosen.connect(self._stack.setCurrentIndex)
        reward = QWidget()
        box = QVBoxLayout(reward)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(12)
        box.addWidget(self._why)
        parts, metrics = Card("Parts of the reward"), Card("What the agent measured")
        parts.body.addWidget(self._parts)
        metrics.body.addWidget(self._metrics)
        self._metrics_card = metrics
        for card in (parts, metrics):
            box.addWidget(card)
        box.addStretch(1)
        for part in (_plain_scroll(reward), self._output, self._raw):
            self._stack.addWidget(part)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 8, 0, 0)
        column.setSpacing(10)
        column.addWidget(self._tabs)
        column.addWidget(self._stack, 1)

    def show_trajectory(self, record: Trajectory, weights: Weights) -> None:
        problem = record.problem
        self._why.setVisible(problem is not None)
        self._why.set_words(str(problem) if problem else "")
        parts = [(part.name, figures.signed(part.value)) for part in parts_of(record, weights)]
        self._parts.set_values([*parts, ("reward", figures.number(record.reward))])
        metrics = [(name, f"{value:g}") for name, value in record.metrics.items()]
        self._metrics_card.setVisible(bool(metrics))
        self._metrics.set_values(metrics)
        detail = f"\n\n{problem.detail}" if problem and problem.detail else ""
        self._output.setPlainText(plain(f"{record.output}{detail}") or "It printed nothing.")
        raw = record.model_dump(mode="json", exclude={"branches", "output"})
        text = json.dumps(raw, indent=1, ensure_ascii=False)[:RAW_MOST]
        self._raw.setPlainText(plain(text))


def _raw_text(name: str) -> QPlainTextEdit:
    text = QPlainTextEdit()
    text.setAccessibleName(name)
    text.setReadOnly(True)
    text.setFont(theme().font("mono-small"))
    return text


def _plain_scroll(content: QWidget) -> QScrollArea:
    return scrolled(content)
