"""Labels of an open run: preview, storage, undo and redo.

Input: labels of a person. Output: rows and one event per label, and the resulting rewards and
advantages. An undo recomputes the group from the remaining labels, so it restores every byte.
"""

import asyncio
import getpass
import time
import uuid
from collections.abc import Sequence

from engine.protocol.config.labels import LabelsConfig
from engine.protocol.events.run import BatchClosed
from engine.protocol.problems import Refused
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.judging import version_of
from engine.protocol.records.labels import (
    MOST_STALE,
    SCORING,
    Enters,
    Label,
    Labelled,
    LabelPreview,
    Word,
)
from engine.protocol.records.runs import TRAINING_KINDS, Split, Trajectory
from engine.reward.advantage.group import group_summary
from engine.reward.labels import apply_labels, may_be_scored, outcomes, without_labels
from engine.reward.order import JudgeToPerson
from engine.storage.run_db.writer import summary_of
from engine.storage.run_folder.run import Run
from engine.training.labels.gold import pin


class LabelService:
    """Labels of one open run, changed one at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._one_at_a_time = asyncio.Lock()

    @property
    def run_id(self) -> str:
        return self._run.spec.id

    def preview(self, label: Label) -> LabelPreview:
        """Return the rewards and advantages that a label would change, without storing it. Raises
        Refused if it is invalid."""
        self._check_run(label)
        now, after, mapped = self._with(label)
        return LabelPreview(
            outcomes=outcomes(self._run.config, now, after),
            enters=self._enters(label),
            mapped=mapped,
        )

    async def add(self, label: Label) -> Labelled:
        """Store a label and return after COMMIT; if its id is stored already, return the stored
        one. Raises Refused if the label is invalid or belongs to another run."""
        self._check_run(label)
        async with self._one_at_a_time:
            if known := self._run.reader.label(label.id):
                return self._response(known)
            _, after, _ = self._with(label)
            label = self._signed(label)
            return await self._store(label, False, after)

    async def undo(self) -> Labelled:
        """Undo the newest label in force. Raises Refused if there is none."""
        async with self._one_at_a_time:
            held = [label for label in self._run.reader.labels() if label.holds()]
            if not held:
                raise Refused.of("label.none", "This run has no label to undo.")
            label = max(held, key=lambda label: label.seq)
            others = [one for one in self._of(label) if one.holds() and one.id != label.id]
            return await self._store(label, True, self._made(label, others)[1])

    async def redo(self) -> Labelled:
        """Restore the label undone last. Raises Refused without one, or after a new label."""
        async with self._one_at_a_time:
            labels = self._run.reader.labels()
            redone = {label.redo_of for label in labels}
            last_added = max((one.seq for one in labels if not one.redo_of), default=0)
            undone = [
                (one.undone, one)
                for one in labels
                if one.undone and one.id not in redone and one.undone > last_added
            ]
            if not undone:
                raise Refused.of("label.none", "This run has no undone label to redo.")
            last = max(undone, key=lambda pair: pair[0])[1]
            update = {"id": uuid.uuid4().hex, "redo_of": last.id, "undone": None, "at": time.time()}
            update["run_id"] = self._run.spec.id
            again = last.model_copy(update=update)
            return await self._store(again, False, self._with(again)[1])

    def _check_run(self, label: Label) -> None:
        if label.run_id != self._run.spec.id:
            named = f"is for run {label.run_id}" if label.run_id else "names no run"
            raise Refused.of(
                "label.other_run",
                f"The label {named}, but was sent to {self._run.spec.id}.",
                "Open the run that the group belongs to, and label it there.",
                where=self._run.spec.name,
            )

    def _with(self, label: Label) -> tuple[list[Trajectory], list[Trajectory], int]:
        """Trajectories of the label's group as stored and as the label would change them, and the
        number of score labels that the judge-to-label map is fitted on."""
        self._check(label)
        held = [one for one in self._of(label) if one.holds()]
        return self._made(label, [*held, label])

    def _made(
        self, place: Label, labels: list[Label]
    ) -> tuple[list[Trajectory], list[Trajectory], int]:
        """Trajectories of the group of `place` as stored and as exactly these labels change them,
        and the number of score labels that the judge-to-label map is fitted on (0: not used)."""
        siblings = self._siblings(place)
        own = {one.id for one in self._of(place)}
        held = [one for one in self._run.reader.labels() if one.holds() and one.id not in own]
        to_person = judge_to_label_map(self._run, [*held, *labels], siblings)
        after = apply_labels(self._run.config, siblings, labels, to_person)
        scored = any(word.kind == "score" for one in labels for word in one.words)
        return siblings, after, to_person.count if scored and to_person.is_fitted else 0

    async def _store(self, label: Label, undone: bool, after: list[Trajectory]) -> Labelled:
        group = group_summary(self._run.config.train.algorithm.advantage, after)
        write = self._run.writer.undo_label if undone else self._run.writer.add_label
        await write(label, group, after)
        if any(word.kind == "gold" for word in label.words):
            await asyncio.to_thread(pin, self._run)
        return self._response(self._run.reader.label(label.id) or label)

    def _response(self, label: Label) -> Labelled:
        siblings = self._siblings(label)
        group = self._run.reader.group(label.split, label.step, label.group)
        assert group is not None
        return Labelled(label=label, group=group, trajectories=[summary_of(t) for t in siblings])

    def _signed(self, label: Label) -> Label:
        source = self._run.orders.rubric or self._run.spec.rubric
        update = {
            "at": time.time(),
            "run_id": self._run.spec.id,
            "who": label.who or getpass.getuser(),
            "rubric": label.rubric or (version_of(source) if source else ""),
            "seq": 0,
            "undone": None,
        }
        return label.model_copy(update=update)

    def _siblings(self, label: Label) -> list[Trajectory]:
        return self._run.reader.stored(label.split, label.step, label.group)

    def _of(self, label: Label) -> list[Label]:
        return self._run.reader.labels(label.split, label.step, label.group)

    def _enters(self, label: Label) -> Enters:
        if (
            label.effect == "none"
            or label.split != "train"
            or self._run.spec.kind not in TRAINING_KINDS
        ):
            return "no step"
        if label.step not in closed_batches(self._run):
            return "this step"
        return "the next step" if label.effect == "again" else "no step"

    def _check(self, label: Label) -> None:
        """Raise Refused if the label is invalid."""
        if self._run.reader.group(label.split, label.step, label.group) is None:
            raise Refused.of(
                "label.too_early",
                "This group is not complete.",
                "Wait until all rollouts of the group have ended and been judged.",
            )
        siblings = {one.id: one for one in self._siblings(label)}
        for word in label.words:
            _check_word(word, siblings)
            if word.kind == "field":
                _check_field(word, self._run.config.labels)
        if label.effect == "again":
            self._check_again(label)

    def _check_again(self, label: Label) -> None:
        closed = closed_batches(self._run)
        following = max(closed, default=0) + 1
        if label.split != "train" or self._run.spec.kind not in TRAINING_KINDS:
            raise Refused.of("label.not_trained", "This group was never trained on.")
        if following - label.step > MOST_STALE:
            raise Refused.of(
                "label.too_stale",
                f"This group is {following - label.step} steps old, but only groups up to "
                f"{MOST_STALE} steps old can be trained again.",
                "Use the label as an example for the judge, or mark a trajectory as gold.",
            )


def _check_word(word: Word, siblings: dict[str, Trajectory]) -> None:
    named = [word.trajectory_id] if word.trajectory_id else []
    named += [name for layer in word.order for name in layer]
    strangers = [name for name in named if name not in siblings]
    if strangers:
        raise Refused.of("label.stranger", f"{strangers[0]} is not a trajectory of this group.")
    if (word.kind == "order" and len(set(named)) < 2) or len(named) != len(set(named)):
        raise Refused.of("label.bad_order", "A ranking needs at least two trajectories, each once.")
    if word.kind not in ("order", "note") and not word.trajectory_id:
        raise Refused.of("label.nobody", f"A label of kind {word.kind} needs a trajectory.")
    if word.kind == "score" and word.value is None:
        raise Refused.of("label.no_score", "A score needs a value between 0 and 1.")
    failed = [name for name in named if not may_be_scored(siblings[name])]
    if word.kind in SCORING and failed:
        raise Refused.of(
            "label.failed_attempt",
            f"Trajectory {siblings[failed[0]].index + 1} failed, so it cannot be scored.",
            "Leave this trajectory out of the label; failed trajectories are not trained on.",
        )


def _check_field(word: Word, labels: LabelsConfig) -> None:
    """Raise Refused for an unknown field or an invalid value."""
    field = labels.fields.get(word.name)
    if field is None:
        known = ", ".join(labels.fields) or "none"
        raise Refused.of(
            "label.no_field",
            f"This run has no label field {word.name[:40]!r}; its fields: {known}.",
            "Add the field under [labels.fields] in project.toml, and start a new run.",
        )
    value = word.value if word.value is not None else word.text
    if problem := field.problem_of(value):
        raise Refused.of(
            "label.bad_field",
            f"{word.name} cannot be {str(value)[:60]!r}.",
            problem,
            where=word.name,
        )


def closed_batches(run: Run) -> dict[int, BatchClosed]:
    """Return the first `batch.closed` event by step; it fixes which labels and older groups the
    update of that step uses."""
    found: dict[int, BatchClosed] = {}
    for event in run.reader.events_of("batch.closed"):
        if isinstance(event, BatchClosed):
            found.setdefault(event.step, event)
    return found


def labelled_group(run: Run, split: Split, step: int, group: int, until: int) -> list[Trajectory]:
    """Return a stored group with the labels applied that were stored before the event with sequence
    number `until`, and with the resulting advantages."""
    siblings = run.reader.stored(split, step, group)
    held = [label for label in run.reader.labels(split, step, group) if label.holds(until)]
    counted = [label for label in run.reader.labels() if label.holds(until)]
    to_person = judge_to_label_map(run, counted, siblings)
    now = apply_labels(run.config, siblings, held, to_person)
    summary = group_summary(run.config.train.algorithm.advantage, now)
    return [
        one.model_copy(update={"advantage": advantage})
        for one, advantage in zip(now, summary.advantages, strict=True)
    ]


def judge_to_label_map(
    run: Run, labels: Sequence[Label], siblings: Sequence[Trajectory]
) -> JudgeToPerson:
    """Monotone map from judge scores to a person's, fitted on the score labels in `labels`; a later
    label of the same trajectory replaces an earlier one. `siblings` are trajectories in memory;
    others are read from the store. Without an enabled judge, the map is empty."""
    if not run.config.judge.enabled:
        return JudgeToPerson([])
    given = {
        word.trajectory_id: word.value
        for label in labels
        for word in label.words
        if word.kind == "score" and word.trajectory_id and word.value is not None
    }
    judged = {one.id: without_labels(one).parts for one in siblings}
    for row in run.reader.summaries([name for name in given if name not in judged]):
        judged[row.id] = row.unlabelled.parts if row.unlabelled else row.parts
    pairs = (
        (judged[name][RULER], value)
        for name, value in given.items()
        if name in judged and RULER in judged[name]
    )
    return JudgeToPerson(pairs)
