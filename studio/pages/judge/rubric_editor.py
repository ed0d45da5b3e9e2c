"""Rubric editor: versions, criteria with weights, text, changes and the exact prompt."""

import time

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QMenu, QPlainTextEdit, QStackedWidget, QWidget

from engine.protocol.records.judging import RubricVersion, RubricView
from studio.models.projects import ago
from studio.store.projects import rubric
from studio.store.projects.rubric import Part
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.code_editor import CodeEditor, MarkdownColours
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.tables.weight_bar import WeightBar
from studio.widgets.text.text import Text

WORDS_PER_TOKEN = 0.75
MARKS = {" ": ("muted", None), "+": ("text", "accent-soft"), "-": ("muted", "bad-soft")}


class RubricEditor(QWidget):
    """Rubric editor: `turn_to(path)` selects a project, `show_view(view)` its rubric. Emits
    `edited(source)` on typing and `save_wanted(source)`. Unsaved text is kept per project and
    restored when the project is opened again."""

    edited = Signal(str)
    save_wanted = Signal(str)
    use_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view: RubricView | None = None
        self._read_mark = ""
        self._path = ""
        self._drafts: dict[str, str] = {}
        """Project path → unsaved text."""
        self._against: RubricVersion | None = None
        self._sent: list[dict[str, str]] = []
        self._parts: list[Part] = []
        self._shown = "text"  # or "changes", or "sent"
        self.text = CodeEditor("Rubric")
        self._colours = MarkdownColours(self.text.document())
        self._read = QPlainTextEdit()
        self._read.setReadOnly(True)
        self._read.setFont(theme().font("mono"))
        self._read.setProperty("bare", True)
        self._weights = WeightBar()
        self._add = Button("Criterion", "quiet", icon="plus", height=24)
        self._stack = QStackedWidget()
        self._name = Text("rubric.md", "heading", 600)
        self._version = Button("No version yet", "outlined", height=28)
        self._when = Text("", "caption", 400, "muted")
        self._changes = Button("Changes", "quiet", icon="git-compare-arrows", height=28)
        self._as_sent = Button("Prompt", "quiet", icon="eye", height=28)
        self._words = Text("", "caption", 400, "muted", wrap=True)
        self._use = Button("Use from now on", "outlined", height=28)
        self._use.hide()
        self._discard = Button("Discard", "quiet", height=28)
        self._save = Button("Save version", "outlined", icon="save", key="Ctrl S", height=28)
        self._lay_out()
        self.text.textChanged.connect(self._typed)
        self._weights.moved.connect(self._move)
        self._weights.chip_pressed.connect(self._find)
        self._add.clicked.connect(self._add_part)
        self._version.clicked.connect(self._menu)
        self._changes.clicked.connect(lambda: self._turn("changes"))
        self._as_sent.clicked.connect(lambda: self._turn("sent"))
        self._discard.clicked.connect(self.discard)
        self._save.clicked.connect(self.save)
        self._use.clicked.connect(lambda: self.use_wanted.emit(self.source))

    def _lay_out(self) -> None:
        self._stack.addWidget(self.text)
        self._stack.addWidget(self._read)
        head = hbox(
            self._name,
            self._version,
            self._when,
            STRETCH,
            self._changes,
            self._as_sent,
            margins=(16, 0, 12, 0),
            spacing=8,
        )
        weights = vbox(self._weights, margins=(16, 10, 16, 6), spacing=4)
        self._words.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        weights.addLayout(hbox(self._add, (self._words, 1), spacing=12))
        foot = hbox(
            STRETCH, self._use, self._discard, self._save, margins=(16, 0, 16, 0), spacing=8
        )
        self._bands: list[QWidget] = []
        column = vbox(parent=self, spacing=0)
        for line, height in ((head, 44), (weights, 0), (None, 0), (foot, 40)):
            if line is None:
                column.addWidget(self._stack, 1)
                continue
            box = QWidget()
            box.setLayout(line)
            if height:
                box.setFixedHeight(height)
            column.addWidget(box)
            self._bands.append(box)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_when()

    def _show_when(self) -> None:
        """Show age and author of the version where they fit whole; the tooltip has them too."""
        parts = (self._name, self._version, self._when, self._changes, self._as_sent)
        needed = sum(part.sizeHint().width() for part in parts) + 4 * 8 + 28
        self._when.setVisible(bool(self._when.words()) and needed <= self.width())
        set_tip(self._version, self._when.words())

    def paintEvent(self, event: QPaintEvent) -> None:
        head, weights, foot = self._bands
        with paint.painting(self) as painter:
            for y in (head.geometry().bottom(), weights.geometry().bottom(), foot.y()):
                painter.fillRect(0, y, self.width(), 1, theme().color("border"))

    @property
    def source(self) -> str:
        return self.text.text()

    @property
    def dirty(self) -> bool:
        """Return whether the text has unsaved changes."""
        return self._view is not None and self.source != self._view.source

    def turn_to(self, path: str) -> None:
        """Select a project; the editor is disabled until its rubric arrives."""
        if path == self._path:
            return
        if self.dirty:
            self._drafts[self._path] = self.source
        self._path, self._view, self._against = path, None, None
        self._read_mark = ""
        self._turn("text", keep=True)
        self.text.setPlainText("")  # clears the undo history of the other project
        self.setEnabled(False)

    def show_view(self, view: RubricView, name: str) -> None:
        """Show the stored rubric of the file `name`; unsaved text is kept."""
        first, untouched = self._view is None, not self.dirty
        if first or untouched or view.source == self.source:
            self._read_mark = view.fingerprint
        self._view = view
        self._name.set_words(name)
        self._against = view.versions[-1] if view.versions else None
        if first:
            self.text.setPlainText(self._drafts.pop(self._path, view.source))
            self.setEnabled(True)
        elif untouched and self.source != view.source:
            self.text.set_text(view.source)
        self._refresh()

    def show_source(self, source: str) -> None:
        """Replace the text by a preset, a suggestion or an old version; undo restores it."""
        self._turn("text", keep=True)
        self.text.set_text(source)

    def show_sent(self, messages: list[dict[str, str]]) -> None:
        """Set the content of the view "prompt": the chat messages that the judge receives."""
        self._sent = messages
        if self._shown == "sent":
            self._show_sent()

    def set_use(self, words: str) -> None:
        """Set the label of the button that gives the rubric to an active run; empty: hidden."""
        self._use.setVisible(bool(words) and not self.dirty)
        if words:
            self._use.set_words(words)

    @property
    def read(self) -> str:
        """Return the fingerprint of the file on which the draft is based."""
        return self._read_mark

    def save(self) -> None:
        if self.dirty:
            self.save_wanted.emit(self.source)

    def discard(self) -> None:
        if self._view is not None:
            self.show_source(self._view.source)

    def version_words(self, version: str) -> str:
        """Return the title of a version (hash): "rubric 3", or "rubric 1a2b3c" if unknown."""
        for one in reversed(self._view.versions if self._view else []):
            if one.version == version:
                return f"rubric {one.number}"
        return f"rubric {version[:6]}"

    def _typed(self) -> None:
        self._refresh()
        self.edited.emit(self.source)

    def _refresh(self) -> None:
        view = self._view
        parts = rubric.parts_of(self.source)
        if parts is not None:
            self._parts = parts
            names = [part.name for part in parts]
            self._weights.set_weights(names, rubric.shares(parts))
        base = self._against.source if self._against else ""
        self.text.set_changed(rubric.changed_lines(base, self.source) if base else set())
        self._discard.setEnabled(self.dirty)
        self._save.setEnabled(self.dirty)
        versions = view.versions if view else []
        label = f"Rubric {versions[-1].number}" if versions else "No version yet"
        self._version.set_words(f"{label} · draft" if self.dirty and versions else label)
        self._version.setEnabled(bool(versions))
        self._changes.setEnabled(bool(versions))
        if versions:
            last = versions[-1]
            self._when.set_words(f"{ago(last.at, max(last.at, time.time()))} · {last.who}")
        else:
            self._when.set_words("")
        self._show_when()
        self._say(parts is None)
        if self._shown == "changes":
            self._show_changes()

    def _say(self, broken: bool) -> None:
        if broken:
            self._words.set_tone("bad")
            self._words.set_words(
                "The front matter is invalid. Each criterion needs a name and a weight."
            )
            return
        count = len(self.source.split())
        tokens = round(count / WORDS_PER_TOKEN)
        self._words.set_tone("muted")
        self._words.set_words(
            f"{formatting.plural(count, 'word')} · ≈ {tokens} tokens per judge call"
            if count
            else "Describe what makes a trajectory better. Ten lines are enough."
        )

    def _move(self, boundary: int, share: float) -> None:
        if len(self._parts) > 1:
            moved = rubric.moved(self._parts, boundary, share)
            self.text.set_text(rubric.with_parts(self.source, moved))

    def _find(self, place: int) -> None:
        """Move the cursor to the criterion at an index."""
        self._turn("text", keep=True)
        cursor = self.text.document().find(self._parts[place].name)
        if not cursor.isNull():
            self.text.setTextCursor(cursor)
            self.text.setFocus()

    def _add_part(self) -> None:
        self._turn("text", keep=True)
        weight = sum(part.weight for part in self._parts) / max(1, len(self._parts)) or 1.0
        part = Part(
            f"criterion {len(self._parts) + 1}", round(weight, 2), ("Description of the criterion.")
        )
        self.text.set_text(rubric.with_parts(self.source, [*self._parts, part]))
        self._find(len(self._parts) - 1)

    def _menu(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for one in reversed(self._view.versions if self._view else []):
            words = f"Rubric {one.number} · {ago(one.at, max(one.at, time.time()))} · {one.who}"
            sub = menu.addMenu(words)
            sub.addAction("Compare with this version").triggered.connect(
                lambda _=0, v=one: self._compare(v)
            )
            sub.addAction("Restore this version").triggered.connect(
                lambda _=0, v=one: self.show_source(v.source)
            )
        menu.popup(self._version.mapToGlobal(self._version.rect().bottomLeft()))

    def _compare(self, version: RubricVersion) -> None:
        self._against = version
        self._turn("changes", keep=True)

    def _turn(self, what: str, keep: bool = False) -> None:
        """Switch to text, changes or prompt; the same view again returns to the text."""
        self._shown = what if keep or self._shown != what else "text"
        self._stack.setCurrentIndex(0 if self._shown == "text" else 1)
        self._changes.set_kind("outlined" if self._shown == "changes" else "quiet")
        self._as_sent.set_kind("outlined" if self._shown == "sent" else "quiet")
        if self._shown == "changes":
            self._show_changes()
        elif self._shown == "sent":
            self._show_sent()

    def _show_changes(self) -> None:
        base = self._against.source if self._against else ""
        number = self._against.number if self._against else 0
        self._read.setAccessibleName(f"Changes since rubric {number}")
        self._read.clear()
        cursor = QTextCursor(self._read.document())
        for sign, line in rubric.diff(base, self.source):
            tone, ground = MARKS[sign]
            style = QTextCharFormat()
            style.setForeground(theme().color(tone))
            if ground:
                style.setBackground(theme().color(ground))
            cursor.insertText(f"{sign} {line}\n", style)
        self._read.moveCursor(QTextCursor.MoveOperation.Start)

    def _show_sent(self) -> None:
        self._read.setAccessibleName("Exact prompt sent to the judge")
        texts = [f"── {m['role']} ──\n{m['content']}" for m in self._sent]
        empty = "No prompt to show. Choose a judge and a run with stored groups."
        self._read.setPlainText("\n\n".join(texts) or empty)
