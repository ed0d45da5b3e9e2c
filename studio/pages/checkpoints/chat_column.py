"""Column of one model in the side-by-side chat: name, messages, outcome and judge score."""

from collections.abc import Sequence

from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.records.conversations import Message as ChatMessage
from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.reader.transcript_rows import items_of
from studio.store.runs.chat import Side
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import Item, Message
from studio.widgets.transcript.view import Transcript


class SideColumn(QWidget):
    """Column of one model: name, messages and outcome."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.first = True
        """Whether this is the leftmost column, which has no separator."""
        self._name = Text("", "body", 600, elide=True)
        self._facts = Text("", "caption", 400, "faint")
        self._talk = Transcript(compact=True)
        self._talk.set_tint("none")
        self._verdict = Text("", "label", 400, "judge", wrap=True)
        self._verdict.setContentsMargins(14, 6, 14, 8)
        line = hbox((self._name, 1), self._facts, margins=(14, 10, 14, 6))
        vbox(line, (self._talk, 1), self._verdict, parent=self, spacing=0)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.first:
            with paint.painting(self) as painter:
                painter.fillRect(0, 0, 1, self.height(), theme().color("border"))

    def show_side(self, side: Side, name: str, tone: str, nameless: bool, waits: bool) -> None:
        """Show the messages of one model, below its title `name` in the colour `tone` (token).
        `nameless`: a blind vote hides name and rewards, `waits`: its response is pending."""
        self._name.set_words(name)
        self._name.set_tone("text" if tone == "muted" else "accent")
        facts = ("answers…" if side.text else "waits…") if waits else facts_of(side)
        self._facts.set_words("" if nameless and not waits else facts)
        self._talk.set_items(rows_of(side, nameless), keep_place=True)
        self._verdict.set_words(verdict_words(side))
        self._verdict.setVisible(bool(self._verdict.words()))
        if side.text:
            self._talk.verticalScrollBar().setValue(self._talk.verticalScrollBar().maximum())


def rows_of(side: Side, nameless: bool) -> list[Item]:
    """Convert a chat to transcript rows; without rewards if `nameless` (blind)."""
    if side.attempt is not None:
        scored = side.attempt.reward is not None
        words = side.attempt.model_copy(update={"branches": []})  # without the stop tokens
        return items_of(words, blind=nameless or not scored)
    shown = side.shown
    if any(one.tool_calls or one.role == "tool" for one in shown):
        return prompt_rows(shown)
    titles = {"user": "Prompt", "assistant": "Response"}
    return [
        Message(one.role, one.content, titles.get(one.role, one.role.capitalize())) for one in shown
    ]


def prompt_rows(messages: Sequence[ChatMessage]) -> list[Item]:
    """Convert messages with tool calls to transcript rows."""
    record = Trajectory(
        id="", split="validation", step=0, group=0, index=0, scenario_id="", title="", reward=None,
        messages=list(messages),
    )  # fmt: skip
    return items_of(record, blind=True)


def verdict_words(side: Side) -> str:
    """Format score and reason of the judge for one model's response; empty if not judged."""
    if side.verdict is None:
        return ""
    score = formatting.number(side.verdict.score)
    return f"{score}  {side.verdict.reason or 'no reason given'}"


def facts_of(side: Side) -> str:
    """Describe model calls, tokens and duration of the last rollout; empty without one."""
    attempt = side.attempt
    if attempt is None:
        return ""
    facts = [formatting.plural(attempt.turns, "call")]
    if attempt.sampled_tokens:
        facts.append(formatting.plural(attempt.sampled_tokens, "token"))
    return " · ".join([*facts, formatting.duration(attempt.duration_s)])
