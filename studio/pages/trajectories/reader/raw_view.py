"""Raw text: judge prompts and replies, the stored record, agent output. The display is bounded and
wrapped for Qt; Copy all takes the complete text."""

import json
from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QApplication, QMenu, QPlainTextEdit, QWidget

from engine.protocol.records.judging import Call
from engine.protocol.records.runs import Trajectory
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import break_long_lines, plain

SHOWN_MOST = 100_000
"""Maximum number of characters displayed."""


class RawView(QWidget):
    """Raw text view. Emits `call_wanted(key)` to load a judge exchange, shown by `show_call`."""

    call_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._record: Trajectory | None = None
        self._calls: Sequence[tuple[str, str]] = ()
        self._whole: Callable[[], str] = str
        self._wanted = ""
        self._choice = Button("Record", "outlined", height=24, menu_arrow=True)
        self._copy = Button("Copy all", "quiet", icon="copy", height=24)
        self._facts = Text("", "caption", tone="faint", wrap=True)
        self.text = QPlainTextEdit()
        self.text.setAccessibleName("Raw")
        self.text.setReadOnly(True)
        self.text.setUndoRedoEnabled(False)
        self.text.setFont(theme().font("mono-small"))
        line = hbox(self._choice, STRETCH, self._copy)
        vbox(line, (self.text, 1), self._facts, parent=self, spacing=8)
        self._choice.clicked.connect(self._open_menu)
        self._copy.clicked.connect(self.copy)

    def show_record(self, record: Trajectory, calls: Sequence[tuple[str, str]]) -> None:
        """Show the first of the judge `calls` (key, name); without any, the trajectory as JSON."""
        self._record, self._calls = record, calls
        if calls:
            self.choose(calls[0][0])
        else:
            self.choose("record")

    def choose(self, what: str) -> None:
        """Select the text shown: `record` (the trajectory), `output` (printed by the agent) or the
        key of a judge call, which is then requested by the signal `call_wanted`."""
        record = self._record
        if record is None:
            return
        self._wanted = what
        named = {"record": "Record", "output": "Output", **dict(self._calls)}
        self._choice.set_words(named.get(what, "Record"))
        if what == "record":
            self._show(lambda: dumped(record), "Stored record, without tokens.")
        elif what == "output":
            detail = f"\n\n{record.problem.detail}" if record.problem else ""
            words = f"{record.output}{detail}".strip() or "No output."
            self._show(lambda: words, "Output printed by the agent.")
        else:
            self._show(str, "Loading…")
            self.call_wanted.emit(what)

    def show_call(self, call: Call) -> None:
        """Show a loaded judge call, unless the user has selected another text."""
        if call.key == self._wanted:
            self._show(lambda: exchange(call), call_facts(call))

    def copy(self) -> None:
        QApplication.clipboard().setText(self._whole())
        self._facts.set_words("Copied")

    def _show(self, whole: Callable[[], str], facts: str) -> None:
        self._whole = whole
        words = whole()
        over = len(words) - SHOWN_MOST
        self.text.setPlainText(break_long_lines(plain(words[:SHOWN_MOST])))
        more = f" {formatting.count(over)} more characters are hidden; Copy all includes them."
        self._facts.set_words(facts + (more if over > 0 else ""))

    def _open_menu(self) -> None:
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        for key, words in (*self._calls, ("record", "Record"), ("output", "Output")):
            menu.addAction(words).triggered.connect(lambda _=False, k=key: self.choose(k))
        menu.popup(self._choice.mapToGlobal(self._choice.rect().bottomLeft()))


def dumped(record: Trajectory) -> str:
    """Return a trajectory as JSON, without its tokens and the agent's printed output."""
    raw = record.model_dump(mode="json", exclude={"branches", "output"})
    return json.dumps(raw, indent=1, ensure_ascii=False)


def exchange(call: Call) -> str:
    """Return a judge call as text: all messages as sent, then the reply as received."""
    sent = [
        f"[{message.get('role', '?')}]\n{message.get('content', '')}" for message in call.messages
    ]
    reply = call.reply or (str(call.problem) if call.problem else "(no reply)")
    return "\n\n".join([*sent, f"[reply]\n{reply}"])


def call_facts(call: Call) -> str:
    """Describe the usage of a judge call: "1,904 tokens in, 212 out · $0.0062 · 2.4 s"."""
    usage = call.usage
    known = "" if usage.known else "at most "
    return (
        f"{formatting.count(usage.prompt_tokens)} tokens in, "
        f"{formatting.count(usage.completion_tokens)} "
        f"out · {known}{formatting.money(usage.cost_usd)} · {formatting.duration(call.seconds)}"
    )
