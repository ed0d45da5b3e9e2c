"""View of a verdict: score, reason, criteria, quotes, passes."""

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.judging import Quote, Verdict
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.meter import MeterRow
from studio.widgets.text.chip import Chip
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

REASON_MOST, QUOTE_MOST, QUOTES_MOST = 6000, 600, 40


class VerdictView(QWidget):
    """View of a verdict. Emits `passage_wanted(quote)` on a click on a verified quote."""

    passage_wanted = Signal(str)

    def __init__(self, verdict: Verdict, chief: bool) -> None:
        super().__init__()
        self._column = vbox(parent=self, spacing=8)
        self._head(verdict, chief)
        if verdict.problem:
            words = f"{verdict.problem.message} {verdict.problem.hint}".strip()
            self._column.addWidget(Text(plain(words), "label", 400, "warn", wrap=True))
        if verdict.reason:
            reason = plain(verdict.reason[:REASON_MOST])
            self._column.addWidget(Text(reason, "label", 400, "muted", wrap=True))
        self._criteria(verdict)
        self._quotes(verdict)
        self._passes(verdict)

    def _head(self, verdict: Verdict, chief: bool) -> None:
        line = hbox(_Icon("scale", "judge"), spacing=8)
        score_words = (
            f"scored {formatting.number(verdict.score)}"
            if verdict.score is not None
            else ("gave no score")
        )
        name = "Judge" if chief else "Judge (not part of the reward)"
        add(line, Text(f"{name} {score_words}", "heading", 600), STRETCH)
        self._column.addLayout(line)
        source = f"{short_model(verdict.judge)} · rubric {verdict.rubric[:6]}"
        self._column.addWidget(Text(source, "caption", tone="faint"))

    def _criteria(self, verdict: Verdict) -> None:
        shown = list(verdict.criteria.items())[:30]
        self._meters([(plain(name[:60]), value) for name, value in shown])

    def _meters(self, values: list[tuple[str, float]]) -> None:
        rows = vbox(spacing=0)
        for name, value in values:
            row = MeterRow(name, "plot-2", words_px=150, figure_px=44)
            row.set_value(value, formatting.number(value))
            rows.addWidget(row)
        self._column.addLayout(rows)

    def _quotes(self, verdict: Verdict) -> None:
        if not verdict.quotes:
            return
        found = sum(quote.found for quote in verdict.quotes)
        line = hbox(Text("Verified quotes", "label", 600), spacing=8)
        if found:
            line.addWidget(Chip(f"{found} found", "good", icon="check"))
        if lost := len(verdict.quotes) - found:
            line.addWidget(Chip(f"{lost} not found", "bad", icon="x"))
        line.addStretch(1)
        self._column.addLayout(line)
        for quote in verdict.quotes[:QUOTES_MOST]:
            shown = QuoteLine(quote)
            shown.wanted.connect(self.passage_wanted)
            self._column.addWidget(shown)

    def _passes(self, verdict: Verdict) -> None:
        if not verdict.passes:
            return
        times = {1: "once", 2: "twice"}.get(len(verdict.passes), f"{len(verdict.passes)} times")
        shuffled = ", order shuffled" if len(verdict.passes) > 1 else ""
        self._column.addWidget(Text(f"Judged {times}{shuffled}", "label", 600))
        self._meters([(f"Pass {number}", score) for number, score in enumerate(verdict.passes, 1)])
        if verdict.stability is not None:
            words = f"Agreement between passes: τ {formatting.number(verdict.stability)}"
            self._column.addWidget(Text(words, "caption", tone="muted"))


class QuoteLine(QWidget):
    """Quote with a link to its passage, or a note that it is not in the transcript."""

    wanted = Signal(str)

    def __init__(self, quote: Quote) -> None:
        super().__init__()
        self._tone = "judge" if quote.found else "bad"
        words = plain(quote.text[:QUOTE_MOST]) + ("…" if len(quote.text) > QUOTE_MOST else "")
        spans = [Span(f"“{words}” ", "muted")]
        if quote.found:
            spans.append(Span("Show", "accent", 500, link="show"))
        else:
            spans.append(Span("Not in the transcript.", "bad", 500))
        phrase = Phrase(spans, "label", wrap=True)
        phrase.link_activated.connect(lambda _: self.wanted.emit(quote.text))
        vbox(phrase, parent=self, margins=(12, 2, 0, 2))

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            painter.fillRect(QRectF(0, 0, 2, self.height()), theme().color(self._tone))


class _Icon(QWidget):
    def __init__(self, name: str, tone: str) -> None:
        super().__init__()
        self._name, self._tone = name, tone
        self.setFixedSize(18, 20)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.icon(painter, QPointF(0, 2), self._name, self._tone, 16)


def short_model(model: str) -> str:
    """Return the model name without its provider: `openai/o4-mini` becomes o4-mini."""
    return plain(model.rpartition("/")[2][:60])
