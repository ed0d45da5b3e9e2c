"""Label bar: keys, a sentence on the effect of the label, preview and Apply. The bar displays and
emits user actions; `LabelSession` holds the state."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QMenu, QStackedWidget, QWidget

from engine.protocol.config.labels import LabelField
from studio.actions.keymap import key_of
from studio.pages.trajectories.labels.draft import score_of
from studio.pages.trajectories.labels.fields import hint, parsed, question
from studio.pages.trajectories.labels.wording import EFFECTS
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.theme.theme import theme
from studio.widgets.charts.advantage_bars import AdvantageBar, AdvantageBars
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.inputs import LineInput
from studio.widgets.controls.key_line import KeyLine
from studio.widgets.controls.toggle import Toggle
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.painting.paint import painting
from studio.widgets.text.phrase import Phrase, Span
from studio.widgets.text.text import Text

BAR_PX, WIDE_PX, ROOMY_PX = 134, 1200, 760
TEACH = "Use as an example for the judge"
REST = "Label the focused trajectory. Enter applies the label."
_KEYS = (
    ("best", "1…9", "best", 0),
    ("worst", "⇧1…9", "worst", 1),
    ("tie", "␣", "tie", 5),
    ("score", "S", "score", 4),
    ("veto", "V", "veto", 1),
    ("exclude", "X", "exclude", 2),
    ("gold", "G", "gold", 3),
    ("flag", "F", "flag", 6),
    ("note", "N", "note", 5),
    ("fields", "A", "fields", 2),
    ("undo", "U", "undo", 3),
)


class LabelBar(QWidget):
    """Label bar: signals report user actions, `show_…` and `set_…` update the display."""

    key_clicked = Signal(str)
    applied = Signal()
    effect_chosen = Signal(str)
    teach_toggled = Signal(bool)
    score_given = Signal(object)
    note_given = Signal(str)
    field_given = Signal(str, object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(BAR_PX)
        self.setAccessibleName("Label")
        self._home: QWidget = self
        self._keys, self._entry = KeyLine("Keyboard shortcuts of the label"), ""
        self._asked: tuple[str, LabelField] | None = None
        """Name and kind of the custom field that is asked for."""
        self._question = Text("", "label", 500)
        self._field = LineInput("Note or score", compact=True)
        self._hint = Text("", "caption", tone="faint")
        self._words = Text(REST, "label", 400, "muted", wrap=True)
        self._apply = Button("Apply label", "primary", key="Enter")
        self._effect = Button(EFFECTS[0][1], "outlined", menu_arrow=True)
        self._teach = Toggle(TEACH)
        self._bars, self._facts = AdvantageBars(), Phrase((), "caption")
        self._build()
        self._wire()
        self.set_pending(False)
        self.set_fields(False)

    # Display

    def show_words(self, words: str = "", tone: str = "muted") -> None:
        """Show a sentence in a theme tone; an empty one shows the default hint."""
        self._words.set_words(words or REST)
        self._words.set_tone(tone if words else "faint")

    def show_bars(self, bars: Sequence[AdvantageBar]) -> None:
        """Show advantages as bars in column order, and the largest change as a sentence."""
        self._bars.set_bars(bars)
        moved = [bar for bar in bars if bar.changed]
        if not bars:
            self._facts.set_spans([])
            return
        spans = [Span("Advantages after this label" if moved else "Advantages", "text", 600)]
        if moved:
            spans += [Span("  ━ ", "human", 600), Span("before", "faint")]
            most = max(moved, key=lambda b: abs((b.after or 0) - (b.before or 0)))
            figure = formatting.signed(most.after) if most.after is not None else "none"
            spans += [
                Span(f"   {most.number}", "text", 600),
                Span(" becomes "),
                Span(figure, "text"),
            ]
        self._facts.set_spans(spans)

    def set_pending(self, pending: bool) -> None:
        """Enable Apply if there is an uncommitted label."""
        self._apply.setEnabled(pending)

    def set_pressed(self, kinds: Sequence[str], best: str = "", worst: str = "") -> None:
        """Highlight the keys of `kinds`, the labels of the focused trajectory. `best`, `worst`:
        numbers of the trajectories labelled best and worst (empty: none)."""
        pressed = [*kinds, *(["best"] if best else []), *(["worst"] if worst else [])]
        self._keys.set_pressed(pressed)
        self._keys.set_key("best", best or "1…9", "best")
        self._keys.set_key("worst", f"⇧{worst}" if worst else "⇧1…9", "worst")

    def set_effect(self, effect: str, done: bool = False) -> None:
        """Show what the label changes: `effect`, a key of `EFFECTS`. `done`: the step has been
        trained, so an override changes only the stored reward."""
        words = next(words for key, words, _ in EFFECTS if key == effect)
        words = "Override · this step only" if effect == "reward" and done else words
        self._effect.set_words(words)
        self._effect.setAccessibleName(f"Effect of the label: {words}")

    def set_teaches(self, teaches: bool, possible: bool) -> None:
        """Set the switch that makes labels examples for the judge; hidden unless `possible`."""
        self._teach.blockSignals(True)
        self._teach.setChecked(teaches and possible)
        self._teach.blockSignals(False)
        self._teach.setVisible(possible)

    def set_busy(self, words: str | None) -> None:
        """Show a busy text on the Apply button; None ends it."""
        self._apply.set_busy(words)

    def sentence(self) -> str:
        """Return the sentence on display."""
        return self._words.words()

    # Entry of a score or a note

    def ask_score(self, number: int) -> None:
        """Ask for a score of the trajectory with this number in the group."""
        self._ask("score", f"Score of {number}", "0 to 1, or percent: 85 is 0.85", "")

    def ask_note(self, number: int, known: str) -> None:
        """Ask for a note on the trajectory with this number; `known` is its present note."""
        self._ask("note", f"Note on {number}", "Enter saves, Esc cancels", known)

    def ask_field(self, number: int, name: str, field: LabelField, known: str) -> None:
        """Ask for a custom field of the trajectory with this number; `known` is its value."""
        self._asked = (name, field)
        self._ask("field", question(name, field, number), hint(field), known)
        self._field.selectAll()

    def set_fields(self, some: bool) -> None:
        """Show the shortcut for custom label fields if the run has `some`; otherwise hide it."""
        self._keys.set_offered("fields", some)

    def asking(self) -> bool:
        """Return whether the entry field for a score or note is open."""
        return bool(self._entry)

    def stop_asking(self) -> None:
        """Close the entry field without a result."""
        if self._entry:
            self._entry = ""
            self._top.setCurrentIndex(0)
            self._home.setFocus(Qt.FocusReason.OtherFocusReason)

    def set_home(self, home: QWidget) -> None:
        """Set the widget that gets the focus after text entry."""
        self._home = home

    def toggle_teach(self) -> None:
        """Toggle the switch "Use as an example for the judge", unless it is hidden."""
        if not self._teach.isHidden():
            self._teach.toggle()

    def open_effects(self) -> None:
        """Open the menu that selects what a label affects."""
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        for key, words, tip in EFFECTS:
            action = menu.addAction(f"{words}    {tip}")
            action.triggered.connect(lambda _=False, k=key: self.effect_chosen.emit(k))
        at = self._effect.mapToGlobal(self._effect.rect().topLeft())
        menu.popup(at - menu.rect().bottomLeft())
        at.setY(at.y() - menu.sizeHint().height())
        menu.move(at)

    def _ask(self, what: str, question: str, hint: str, known: str) -> None:
        self._entry = what
        self._question.set_words(question)
        self._field.setAccessibleName(question)
        self._hint.set_words(hint)
        self._field.setText(known)
        self._field.set_problem(False)
        self._top.setCurrentIndex(1)
        self._field.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _answered(self) -> None:
        typed = self._field.text()
        if self._entry == "note":
            self.stop_asking()
            self.note_given.emit(typed)
            return
        if self._entry == "field":
            self._answer_field(typed)
            return
        value = score_of(typed)
        if value is None and typed.strip():
            self._field.set_problem(True)
            self._hint.set_words("A number from 0 to 1")
            return
        self.stop_asking()
        self.score_given.emit(value)

    def _answer_field(self, typed: str) -> None:
        assert self._asked is not None
        name, field = self._asked
        value = parsed(field, typed)
        if typed.strip() and (problem := field.problem_of(value)):
            self._field.set_problem(True)
            self._hint.set_words(problem)
            return
        self.stop_asking()
        self.field_given.emit(name, value if typed.strip() else None)

    def _typed(self, typed: str) -> None:
        if self._entry == "score" and typed.strip():
            value = score_of(typed)
            figure = formatting.number(value) if value is not None else "A number from 0 to 1"
            self._hint.set_words(figure)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Leave the text field on Escape."""
        pressed = isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress
        if pressed and event.key() == Qt.Key.Key_Escape:  # type: ignore[attr-defined]
            self.stop_asking()
            return True
        return False

    # Building

    def _build(self) -> None:
        for key_id, key, words, rank in _KEYS:
            self._keys.add(key_id, key, words, key_of(f"label.{key_id}").text, rank)
        for part in (self._apply, self._effect, self._teach):
            part.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click does not take the keyboard focus
        set_tip(self._effect, "Effect of the label  M")
        set_tip(self._teach, "Add this label as an example to the judge's prompt  L")
        ask = QWidget()
        asking = hbox(parent=ask, spacing=8)
        self._field.setFixedHeight(22)
        self._field.setMaximumWidth(420)
        add(asking, self._question, (self._field, 2), (self._hint, 1))
        self._top = QStackedWidget()
        self._top.setFixedHeight(28)
        self._top.addWidget(self._keys)
        self._top.addWidget(ask)
        self._words.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        actions = hbox(self._apply, self._effect, self._teach, STRETCH, spacing=8)
        left = vbox((self._words, 1), actions, spacing=6)
        self._left, self._right = QWidget(), QWidget()
        left.setContentsMargins(0, 0, 0, 0)
        self._left.setLayout(left)
        vbox(self._facts, (self._bars, 1), parent=self._right, spacing=2)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(16, 8, 16, 10)
        self._grid.setHorizontalSpacing(24)
        self._grid.setVerticalSpacing(6)
        self._grid.setColumnStretch(0, 3)
        self._grid.setColumnStretch(1, 2)
        self._grid.setRowStretch(1, 1)
        self._arrange()
        self._field.installEventFilter(self)

    def _arrange(self) -> None:
        """Place the preview beside the keys in a wide window, otherwise below them."""
        wide = self.width() >= WIDE_PX
        self._grid.addWidget(self._top, 0, 0, 1, 1 if wide else 2)
        self._grid.addWidget(self._left, 1, 0)
        self._grid.addWidget(self._right, 0 if wide else 1, 1, 2 if wide else 1, 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._teach.setText(TEACH if self.width() >= ROOMY_PX else "Judge example")
        if event.oldSize().width() // WIDE_PX != event.size().width() // WIDE_PX:
            self._arrange()

    def _wire(self) -> None:
        self._keys.key_clicked.connect(self.key_clicked)
        self._apply.clicked.connect(self.applied)
        self._effect.clicked.connect(self.open_effects)
        self._teach.toggled.connect(self.teach_toggled)
        self._field.returnPressed.connect(self._answered)
        self._field.textEdited.connect(self._typed)

    def paintEvent(self, event: QPaintEvent) -> None:
        with painting(self) as painter:
            painter.fillRect(self.rect(), theme().color("raised"))
            painter.fillRect(0, 0, self.width(), 1, theme().color("border-strong"))
