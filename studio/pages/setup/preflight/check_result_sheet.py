"""Sheet with the result of a live check: agent messages and output, or judge scores and reasons."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.protocol.records.conversations import in_text
from engine.protocol.records.judging import JudgeCheck
from engine.protocol.records.runs import Trajectory
from studio.store.projects import check_results
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.check_line import CheckNote
from studio.widgets.cards.facts import Fact, FactRow
from studio.widgets.cards.sheet import Sheet
from studio.widgets.layouts import STRETCH, add, vbox
from studio.widgets.text.text import Text

MOST_CHARS = 4_000
MOST_MESSAGES = 60
WIDE_PX = 560


class CheckedSheet(Sheet):
    """Result sheet: `show_attempt(trajectory)` or `show_answers(found)`."""

    def __init__(self, host: QWidget) -> None:
        super().__init__("Test", host, WIDE_PX)
        self._inside = QWidget()
        add(self.body, self._inside, STRETCH)

    def show_attempt(self, attempt: Trajectory) -> None:
        """Show the test rollout of the agent and open the sheet."""
        column = self._begin(f"Test of the agent: {attempt.title}")
        facts = FactRow(spread=False)
        facts.set_facts(
            [
                Fact("Reward", formatting.number(attempt.reward)),
                Fact("Model calls", formatting.count(attempt.turns)),
                Fact("Tokens", formatting.count(attempt.sampled_tokens)),
                Fact("Time", formatting.duration(attempt.duration_s)),
            ]
        )
        column.addWidget(facts)
        if attempt.problem is not None:
            note = check_results.failed(attempt.problem)
            column.addWidget(CheckNote("bad", "Problem", note.words, note.hint))
        for message in in_text(attempt.messages)[:MOST_MESSAGES]:
            text = message.content or "\n".join(
                f"{call.get('function', {}).get('name', '')}"
                f"({call.get('function', {}).get('arguments', '')})"
                for call in message.tool_calls
            )
            column.addWidget(_passage(message.role, text))
        if len(attempt.messages) > MOST_MESSAGES:
            words = f"{len(attempt.messages) - MOST_MESSAGES} more messages are not shown."
            column.addWidget(Text(words, "caption", tone="muted"))
        if attempt.output:
            column.addWidget(_passage("agent output", attempt.output))
        self.open()

    def show_answers(self, found: JudgeCheck) -> None:
        """Show the test of the judges, with their scores, and open the sheet."""
        column = self._begin(f"Test of the judge: {found.title}")
        words = "The judge compared these trajectories. The check does not affect rewards."
        column.addWidget(Text(words, "label", 400, "muted", wrap=True))
        for number, one in enumerate(found.attempts, 1):
            kind = "synthetic" if one.made_up else "from the agent"
            column.addWidget(_passage(f"Trajectory {number}, {kind}", one.text or "(empty)"))
        for answer in found.answers:
            card = Card(check_results.short_name(answer.judge), check_results.answer_words(answer))
            for number, verdict in enumerate(answer.verdicts, 1):
                score = formatting.number(verdict.score)
                card.body.addWidget(Text(f"Trajectory {number}: {score}", "label", 500, "judge"))
                if verdict.reason:
                    reason = Text(verdict.reason[:MOST_CHARS], "label", 400, "muted", wrap=True)
                    card.body.addWidget(reason)
            if answer.problem is not None:
                note = check_results.failed(answer.problem)
                card.body.addWidget(CheckNote("bad", "Problem", note.words, note.hint))
            column.addWidget(card)
        self.open()

    def _begin(self, title: str) -> QVBoxLayout:
        """Replace the content by an empty column."""
        self.set_title(title)
        before, self._inside = self._inside, QWidget()
        self.body.replaceWidget(before, self._inside)
        before.deleteLater()
        column = vbox(parent=self._inside, spacing=12)
        return column


def _passage(head: str, text: str) -> QWidget:
    """Build the widget of a message: heading and selectable text."""
    box = QWidget()
    column = vbox(Text(head.capitalize(), "caption", 500, "muted"), parent=box, spacing=2)
    shown = text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "…"
    column.addWidget(Text(shown, "label", 400, wrap=True, selectable=True))
    return box
