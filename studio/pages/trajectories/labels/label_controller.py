"""Controller of labels: connects keys, columns, bar and notifications to the draft.

Emits `waiting_changed` when an uncommitted label appears or goes, and
`group_changed(GroupSummary)` and `labelled(Label)` when the engine has stored, undone or redone a
label."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.labels import FieldValue
from engine.protocol.records.labels import Label, Labelled
from engine.protocol.requests.runs import Siblings
from studio.pages.trajectories.groups.columns import ColumnsView
from studio.pages.trajectories.keys import Handlers
from studio.pages.trajectories.labels.blind_grading import agreement_words
from studio.pages.trajectories.labels.draft import MARKS
from studio.pages.trajectories.labels.fields import NONE, shown
from studio.pages.trajectories.labels.label_bar import LabelBar
from studio.pages.trajectories.labels.label_session import LabelSession
from studio.pages.trajectories.labels.wording import changed
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.widgets.cards.toast import Toast
from studio.widgets.charts.advantage_bars import AdvantageBar

BLIND = (
    "Blind grading: rewards, verdicts and labels are hidden until you press Enter. Mark the best "
    "and worst, or enter your own scores."
)


class LabelController(QObject):
    """Label controller of a page; `host` owns the controller and its `toast`, which the page lays
    out."""

    waiting_changed = Signal()
    group_changed = Signal(object)
    labelled = Signal(object)

    def __init__(
        self, session: Session, tasks: TaskScope, columns: ColumnsView, bar: LabelBar, host: QWidget
    ) -> None:
        super().__init__(host)
        self._columns, self._bar = columns, bar
        self.labelling = LabelSession(session, tasks, self)
        self.toast = Toast(host)
        self._home: Callable[[], QWidget] = lambda: columns
        self._keys: Handlers = {}
        self._after = ""
        self._given: Label | None = None
        self._wire()

    def show_group(self, siblings: Siblings | None, run_id: str = "", blind: bool = False) -> None:
        """Show a group of a run (None: no group); `blind` hides predicted effects. After a blind
        label, show how far the judge agrees."""
        given, self._given = self._given, None
        self._after = BLIND if blind else ""
        if given is not None and siblings is not None and _is_of(given, siblings):
            self._after = agreement_words(given, siblings)
        self.labelling.show_group(siblings, run_id)
        self.labelling.set_blind(blind)
        if not self.labelling.draft:
            self._bar.show_words(self._after, "text" if self._after else "muted")
        self._show_bars()

    def handlers(self, home: Callable[[], QWidget]) -> Handlers:
        """Return handlers by shortcut id. The widget `home()` gets the focus after text entry."""
        self._home = home
        labelling, columns = self.labelling, self._columns
        marks = {f"label.{mark}": partial(self._about, labelling.mark, mark) for mark in MARKS}
        self._keys = marks | {
            "label.best": lambda place: self._numbered(labelling.best, place),
            "label.worst": lambda place: self._numbered(labelling.worst, place),
            "label.tie": lambda: self._about(labelling.tie),
            "label.up": lambda: columns.move_rank(-1),
            "label.down": lambda: columns.move_rank(1),
            "label.score": self._ask_score,
            "label.note": self._ask_note,
            "label.fields": self._ask_fields,
            "label.apply": labelling.apply,
            "label.undo": labelling.undo,
            "label.redo": labelling.redo,
            "label.effect": self._bar.open_effects,
            "label.teach": self._bar.toggle_teach,
        }
        return self._keys

    def _about(self, call: Callable[..., object], *arguments: object) -> None:
        """Call `call(id, *arguments)` for the focused trajectory, if any."""
        if (record := self._columns.record()) is not None:
            call(record.id, *arguments)

    def _numbered(self, call: Callable[[str], object], place: int) -> None:
        found = [one for one in self.labelling.attempts if one.index == place]
        if found:
            call(found[0].id)
        elif self.labelling.attempts:
            self._bar.show_words(f"This group has no trajectory {place + 1}.", "warn")

    def _key_clicked(self, key: str) -> None:
        """Handle a click on a label key; best, worst and tie apply to the focused trajectory."""
        labelling = self.labelling
        if key in ("best", "worst", "tie"):
            self._about(getattr(labelling, key))
        else:
            self._keys[f"label.{key}"]()

    def _ask_score(self) -> None:
        if record := self._columns.record():
            self._bar.set_home(self._home())
            self._bar.ask_score(record.index + 1)

    def _ask_note(self) -> None:
        if record := self._columns.record():
            self._bar.set_home(self._home())
            self._bar.ask_note(record.index + 1, self.labelling.draft.notes.get(record.id, ""))

    def _ask_fields(self, first: int = 0) -> None:
        """Ask for the custom fields of the focused trajectory, one after the other, from the field
        with index `first` on."""
        record, fields = self._columns.record(), self.labelling.fields()
        if not fields:
            self._bar.show_words(NONE, "warn")
        elif record and first < len(fields):
            name = list(fields)[first]
            known = "" if self.labelling.blind else shown(self.labelling.value_of(record.id, name))
            self._bar.set_home(self._home())
            self._bar.ask_field(record.index + 1, name, fields[name], known)

    def _field_given(self, name: str, value: FieldValue | None) -> None:
        self._about(self.labelling.answer, name, value)
        self._ask_fields(list(self.labelling.fields()).index(name) + 1)

    def _show_draft(self) -> None:
        labelling = self.labelling
        draft = labelling.draft
        self._columns.show_draft(draft)
        self._bar.set_pending(bool(draft))
        self._bar.set_effect(labelling.effect, labelling.is_done())
        self._bar.set_teaches(labelling.teaches, labelling.may_teach())
        if not draft:
            self._bar.show_words(self._after)
            self._show_bars()
        elif labelling.blind:
            self._bar.show_words(labelling.sentence(), "text")
        self._show_pressed()
        self.waiting_changed.emit()

    def show_run(self) -> None:
        """Update the "judge example" switch, hidden if the run has no judge, and the shortcut of
        the custom fields, hidden if it has none."""
        self._bar.set_teaches(self.labelling.teaches, self.labelling.may_teach())
        self._bar.set_fields(bool(self.labelling.fields()))

    def _show_pressed(self) -> None:
        draft, numbers = self.labelling.draft, self.labelling.numbers()
        record = self._columns.record()
        kinds = draft.kinds_of(record.id) if record else []
        best = str(numbers.get(draft.best[0], "")) if draft.best else ""
        worst = str(numbers.get(draft.worst, "")) if draft.worst else ""
        answered = ["fields"] if any(kind[0] == "=" for kind in kinds) else []
        self._bar.set_pressed([*kinds, *answered], best, worst)

    def _show_preview(self) -> None:
        self._bar.show_words(self.labelling.sentence(), "text")
        self._show_bars()

    def _show_bars(self) -> None:
        """Show predicted advantages, or current ones before the preview; none in blind mode."""
        outcomes = {one.trajectory_id: one for one in self.labelling.outcomes()}
        moved = {one.trajectory_id for one in changed(list(outcomes.values()))}
        focused = self._columns.record()
        bars = []
        for one in [] if self.labelling.blind else self.labelling.attempts:
            outcome = outcomes.get(one.id)
            after = outcome.new_advantage if outcome else one.advantage
            before = outcome.advantage if outcome else one.advantage
            held = focused is not None and one.id == focused.id
            bars.append(AdvantageBar(one.index + 1, before, after, one.id in moved, held))
        self._bar.show_bars(bars)

    def _committed(self, answer: Labelled, words: str) -> None:
        self.toast.say(words, undo="Undo")
        self._given = answer.label if answer.label.blind and not answer.label.undone else None
        self.group_changed.emit(answer.group)
        self.labelled.emit(answer.label)

    def _focused(self, index: int) -> None:
        self._show_pressed()
        self._show_bars()

    def _wire(self) -> None:
        labelling, bar = self.labelling, self._bar
        labelling.draft_changed.connect(self._show_draft)
        labelling.previewed.connect(self._show_preview)
        labelling.committed.connect(self._committed)
        labelling.refused.connect(lambda words: bar.show_words(words, "bad"))
        labelling.busy_changed.connect(lambda busy: bar.set_busy("Applying…" if busy else None))
        self._columns.ranked.connect(labelling.rank)
        self._columns.folds_changed.connect(lambda: labelling.set_copies(self._columns.copies()))
        self._columns.focus_changed.connect(self._focused)
        self.toast.undo_requested.connect(labelling.undo_label)
        bar.applied.connect(labelling.apply)
        bar.effect_chosen.connect(labelling.set_effect)
        bar.teach_toggled.connect(labelling.set_teaches)
        bar.score_given.connect(lambda value: self._about(labelling.score, value))
        bar.note_given.connect(lambda text: self._about(labelling.note, text))
        bar.field_given.connect(self._field_given)
        bar.key_clicked.connect(self._key_clicked)


def _is_of(label: Label, siblings: Siblings) -> bool:
    group = siblings.group
    return (label.split, label.step, label.group) == (group.split, group.step, group.group)
