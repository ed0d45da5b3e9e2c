"""Labelling of a group: keys change a draft, the engine previews it, Enter commits it.

Emits `draft_changed` and `committed(Labelled, words)` for the selected run. Only the engine
computes the effect of a label. The user can switch group or run while a request is pending; a
response clears only its own draft."""

import uuid
from collections.abc import Awaitable, Callable

from PySide6.QtCore import QObject, QTimer, Signal

from engine.protocol.config.labels import FieldValue, LabelField
from engine.protocol.problems import Problem
from engine.protocol.records.labels import Label, Labelled, LabelPreview, Outcome, Word, field_part
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import Siblings
from studio.pages.trajectories.groups.folding import Copies
from studio.pages.trajectories.labels import wording
from studio.pages.trajectories.labels.draft import MARKS, Draft, Mark, may_be_ranked
from studio.pages.trajectories.labels.outbox import LabelQueue, LabelRequest, PendingLabel, Place
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.runs.state import RunState

PREVIEW_MS = 40


class LabelSession(QObject):
    """Label draft of the group shown on a page, with preview and commit. `refused` reports a
    problem of this group; problems of other groups go to the session with their location."""

    draft_changed = Signal()
    previewed = Signal()
    committed = Signal(object, str)
    refused = Signal(str)
    busy_changed = Signal(bool)

    def __init__(self, session: Session, tasks: TaskScope, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self._outbox = LabelQueue(tasks, self)
        self._siblings: Siblings | None = None
        self._run_id = ""
        """Run of the group shown; labels refer to it regardless of the selected run."""
        self._past: list[Draft] = []
        self._future: list[Draft] = []
        self._copies: Copies = {}
        self.draft = Draft()
        self.effect = "reward"
        self.teaches = False
        self.blind = False
        self.preview: LabelPreview | None = None
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(PREVIEW_MS)
        self._wait.timeout.connect(self._ask_preview)

    # Group

    def set_blind(self, blind: bool) -> None:
        """Set blind mode: no preview, default effect "Agreement only"; clear the draft."""
        if blind != self.blind:
            self.blind = blind
            self._begin(Draft())

    def show_group(self, siblings: Siblings | None, run_id: str = "") -> None:
        """Select the group to label (None: none). Another group or run begins an empty draft."""
        before, self._siblings = self._siblings, siblings
        other_run, self._run_id = run_id != self._run_id, run_id
        other = before is None or siblings is None or _place(before) != _place(siblings)
        if other or other_run:
            self._begin(Draft())
        elif self.draft and not self._outbox.holds(self._pending_label()):
            self._changed()  # request the preview for the current group

    def set_copies(self, copies: Copies) -> None:
        """Set the trajectories that stand for identical ones (id → ids of all); their labels hold
        for all of these. A change discards the draft."""
        if copies != self._copies:
            self._copies = copies
            if self.draft:
                self._begin(Draft())

    @property
    def attempts(self) -> list[Trajectory]:
        """Return the trajectories of the group; empty without a group."""
        return self._siblings.trajectories if self._siblings else []

    def numbers(self) -> dict[str, int]:
        """Map trajectory ids to their number in the group (from 1)."""
        return {one.id: one.index + 1 for one in self.attempts}

    def outcomes(self) -> list[Outcome]:
        """Return the advantages predicted by the preview, per trajectory; empty without one."""
        return self.preview.outcomes if self.preview else []

    def may_teach(self) -> bool:
        """Return whether labels can be judge examples: the run has a judge."""
        spec = self._state.spec
        return spec is not None and spec.config.judge.enabled

    def is_done(self) -> bool:
        """Return whether the step of the group is complete, so its update cannot use the draft."""
        closed = self._state.closed
        return self._siblings is not None and self._siblings.group.step <= closed

    def sentence(self) -> str:
        """Describe the predicted effect of the uncommitted label; empty if unknown or no label."""
        label = self._label("preview")
        if label is not None and self.blind:
            return f"{wording.gist(label, self.numbers())}. Press Enter to see the effect."
        if label is None or self.preview is None:
            return ""
        words = wording.sentence(label, self.preview, self._state.closed)
        return f"{words} {self._incomplete()}".strip()

    def _incomplete(self) -> str:
        """Name a field of the draft that is a reward part, but lacks values in the group; empty if
        there is none."""
        spec = self._state.spec
        weights = spec.config.reward.weights if spec else {}
        able = [one.id for one in self.attempts if may_be_ranked(one)]
        for field_name in dict.fromkeys(field_name for _, field_name in self.draft.fields):
            weighted = field_name in weights or field_part(field_name) in weights
            if weighted and any(self.value_of(name, field_name) is None for name in able):
                every = f"all {len(able)} trajectories"
                return f"“{field_name}” affects rewards once {every} have a value."
        return ""

    # Keys

    def best(self, name: str) -> None:
        """Toggle the "best" label on the trajectory with id `name`, in the draft."""
        self._take(self.draft.as_best(self._shown(name)))

    def worst(self, name: str) -> None:
        """Toggle the "worst" label on the trajectory with id `name`, in the draft."""
        self._take(self.draft.as_worst(self._shown(name)))

    def tie(self, name: str) -> None:
        """Add the trajectory with id `name` to those tied for best, or remove it."""
        self._take(self.draft.tied(self._shown(name)))

    def mark(self, name: str, mark: Mark) -> None:
        """Toggle a mark (veto, exclude, gold or flag) on the trajectory with id `name`."""
        assert mark in MARKS
        self._take(self.draft.marked(name, mark))

    def score(self, name: str, value: float | None) -> None:
        """Set the score in [0, 1] of the trajectory with id `name`; None removes it."""
        self._take(self.draft.scored(name, value))

    def note(self, name: str, text: str) -> None:
        """Set the note on the trajectory with id `name`; an empty text removes it."""
        self._take(self.draft.noted(name, text))

    def fields(self) -> dict[str, LabelField]:
        """Return the custom label fields of the run, by name."""
        spec = self._state.spec
        return spec.config.labels.fields if spec else {}

    def answer(self, name: str, field_name: str, value: FieldValue | None) -> None:
        """Set the custom field `field_name` of the trajectory with id `name`; None removes it."""
        self._take(self.draft.answered(name, field_name, value))

    def value_of(self, name: str, field_name: str) -> FieldValue | None:
        """Return the value of a custom field in the draft, or else the stored one."""
        stored = next((one.fields.get(field_name) for one in self.attempts if one.id == name), None)
        return self.draft.fields.get((name, field_name), stored)

    def rank(self, names: list[str]) -> None:
        """Rank all trajectories in the draft: ids, best first."""
        self._take(self.draft.ranked(names))

    def set_effect(self, effect: str) -> None:
        """Select what the label affects, a key of `EFFECTS`."""
        self.effect = effect
        self._changed()

    def set_teaches(self, teaches: bool) -> None:
        """Set whether the label also becomes an example for the judge."""
        self.teaches = teaches
        self._changed()

    def discard(self) -> bool:
        """Discard the draft; returns False if there is none."""
        waited = bool(self.draft)
        if waited:
            self._begin(Draft())
        return waited

    def undo(self) -> None:
        """Undo the last change of the draft, or the last label if the draft has no change or is
        being sent."""
        if self._past and not self._outbox.holds(self._pending_label()):
            self._future.append(self.draft)
            self.draft = self._past.pop()
            self._changed()
        else:
            self.undo_label()

    def undo_label(self) -> None:
        """Undo the last label committed in the run."""
        self._call(lambda run: self._session.client.undo_label(run), "Undone: ")

    def redo(self) -> None:
        """Redo the last undone change of the draft, or else the last undone label."""
        if self._future:
            self._past.append(self.draft)
            self.draft = self._future.pop()
            self._changed()
        else:
            self._call(lambda run: self._session.client.redo_label(run), "Redone: ")

    def apply(self) -> None:
        """Send the draft to the engine as a label; ignored while it is being sent."""
        label, pending = self._label(uuid.uuid4().hex), self._pending_label()
        if label is None or self._siblings is None or self._outbox.holds(pending):
            return
        known, numbers, total = self.preview, self.numbers(), len(self.attempts)
        place = _place_words(self._siblings.group.title, label.step)

        async def give() -> tuple[Labelled, int]:
            client, preview = self._session.client, known
            if preview is None and not label.blind:
                # Enter came before the preview, which the confirmation needs
                preview = await client.preview_label(pending.run_id, label)
            moved = len(wording.changed(preview.outcomes)) if preview else 0
            return await client.add_label(pending.run_id, label), moved

        def done(given: tuple[Labelled, int]) -> None:
            answer, moved = given
            if self._pending_label() == pending:
                self._begin(Draft())
            self._tell_busy()
            if label.effect == "none":
                words = f"{wording.gist(label, numbers)}. Agreement only."
            else:
                words = wording.done(label, numbers, moved, total)
            self._tell(pending.run_id, answer, words)

        def failed(problem: Problem, unsent: int) -> None:
            shown = self._pending_label() == pending
            self._tell_busy()
            hint = f"{problem.hint} Nothing was undone." if unsent else problem.hint
            if shown:
                self.refused.emit(f"{problem.message} {hint}".strip())
            else:
                words = f"The label in {place} was not saved. {problem.message}"
                lost = problem.model_copy(update={"message": words, "hint": hint.strip()})
                self._session.problem_raised.emit(lost)

        self._wait.stop()
        self._tasks.cancel("preview")
        self._outbox.put(LabelRequest(pending, give, done, failed))
        self._tell_busy()

    # Internals

    def _shown(self, name: str) -> str:
        """Return the id of the trajectory that stands for `name` in the columns."""
        return next((first for first, ids in self._copies.items() if name in ids), name)

    def _take(self, draft: Draft) -> None:
        if draft != self.draft and self._siblings is not None:
            self._past.append(self.draft)
            self._future.clear()
            self.draft = draft
            self._changed()

    def _begin(self, draft: Draft) -> None:
        self._past.clear()
        self._future.clear()
        self.draft, self.effect = draft, "none" if self.blind else "reward"
        self._changed()

    def _changed(self) -> None:
        self.preview = None
        self._tasks.cancel("preview")
        if self.draft and not self.blind:
            self._wait.start()
        else:
            self._wait.stop()
        self.draft_changed.emit()
        self._tell_busy()

    @property
    def _state(self) -> RunState:
        return self._session.runs.state(self._run_id) if self._run_id else self._session.run.state

    def _pending_label(self) -> PendingLabel:
        place = _place(self._siblings) if self._siblings else None
        teaches = self.teaches and self.may_teach()
        return PendingLabel(self._run_id, place, self.draft, self.effect, teaches)

    def _tell_busy(self) -> None:
        self.busy_changed.emit(self._outbox.holds(self._pending_label()))

    def _tell(self, run_id: str, answer: Labelled, words: str) -> None:
        """Emit `committed` if the run is selected, otherwise show `words` with the run name."""
        if run_id == self._session.run.run_id:
            self.committed.emit(answer, words)
        else:
            run = self._session.runs.summary(run_id)
            self._session.notice.emit(f"{run.name}: {words}" if run else words)

    def _label(self, label_id: str) -> Label | None:
        words = self._words()
        if self._siblings is None or not words:
            return None
        group = self._siblings.group
        return Label.model_validate(
            {
                "id": label_id,
                "run_id": self._run_id,
                "split": group.split,
                "step": group.step,
                "group": group.group,
                "words": words,
                "effect": self.effect,
                "teaches": self.teaches and self.may_teach(),
                "blind": self.blind,
                "who": self._session.annotator,
            }
        )

    def _words(self) -> tuple[Word, ...]:
        return self.draft.words(self.attempts, self._copies)

    def _ask_preview(self) -> None:
        label, run_id = self._label("preview"), self._run_id
        if label is not None and run_id:
            ask = self._preview(run_id, label)
            self._tasks.run("preview", ask, self._show_preview, self._refuse)

    async def _preview(self, run_id: str, label: Label) -> LabelPreview:
        """Request a preview. Raises the engine's errors, and LaunchError if the engine is gone."""
        return await self._session.client.preview_label(run_id, label)

    def _show_preview(self, preview: LabelPreview) -> None:
        self.preview = preview
        self.previewed.emit()

    def _call(self, ask: Callable[[str], Awaitable[Labelled]], begin: str) -> None:
        run_id = self._run_id or self._session.run.run_id
        if not run_id:
            return

        async def work() -> Labelled:
            return await ask(run_id)

        def done(answer: Labelled) -> None:
            label = answer.label
            numbers = {one.id: one.index + 1 for one in answer.trajectories}
            place = _place_words(answer.group.title, label.step)
            words = f"{begin}{wording.gist(label, numbers)} in {place}."
            same = run_id == self._session.run.run_id
            if same and label.split == "train" and label.step <= self._session.run.state.closed:
                words += f" Step {label.step} is complete, so its update does not change."
            self._tell(run_id, answer, words)

        self._outbox.put(LabelRequest(None, work, done, lambda problem, _: self._refuse(problem)))

    def _refuse(self, problem: Problem) -> None:
        self._tell_busy()
        self.refused.emit(f"{problem.message} {problem.hint}".strip())


def _place_words(title: str, step: int) -> str:
    return f"“{title[:40]}”, step {step}"


def _place(siblings: Siblings) -> Place:
    group = siblings.group
    return group.split, group.step, group.group
