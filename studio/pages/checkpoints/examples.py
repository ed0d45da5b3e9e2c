"""Card with validation examples: answers of a checkpoint beside those before training."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtWidgets import QSplitter, QStackedWidget, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from studio.models.rows import RowsModel
from studio.pages.trajectories.reader.transcript_rows import items_of
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.runs.examples import Example, examples_of, judged_scores, validation_at
from studio.text import formatting
from studio.theme.item_roles import TONE_ROLE
from studio.widgets.cards.card import Card
from studio.widgets.layouts import STRETCH, hbox, vbox
from studio.widgets.tables.table import Table
from studio.widgets.text.text import Text
from studio.widgets.transcript.view import Transcript

MOST_EXAMPLES = 500
LIST_PX = 360
NO_CHECKPOINT = "Select a checkpoint to see its answers to the validation scenarios."
NO_VALIDATION = "This run has no validation up to this checkpoint, so there is nothing to compare."


class ExamplesModel(RowsModel[Example]):
    """Table of examples: scenario, mean reward before training and with the checkpoint, change."""

    columns = ("Scenario", "Baseline", "Checkpoint", "Change")
    right = (1, 2, 3)

    def cell(self, row: Example, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            before = row.before.mean if row.before else None
            figures = (formatting.number(before), formatting.number(row.after.mean))
            change = _judged(row.score) if row.judged else formatting.signed(row.change)
            return (row.title, *figures, change)[column]
        if role == TONE_ROLE and column == 3 and row.changed:
            return "good" if (row.change or 0.0) > 0 else "bad"
        if role == Qt.ItemDataRole.ToolTipRole and column == 0:
            return row.title
        return None


class Answer(QWidget):
    """Prompt and answers of one rollout, below the name of its model and the reward."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = Text("", "body", 600, elide=True)
        self._reward = Text("", "mono", tone="muted")
        self.transcript = Transcript(compact=True)
        self.transcript.set_tint("none")
        line = hbox((self._name, 1), self._reward, margins=(14, 8, 14, 6), spacing=8)
        vbox(line, (self.transcript, 1), parent=self, spacing=0)

    def show_answer(self, name: str, record: Trajectory | None, relative: bool) -> None:
        """Show a rollout of the model `name`; None: there is none. `relative`: rewards compare only
        rollouts of a group, and are not shown."""
        self._name.set_words(name)
        reward = record.reward if record else None
        words = f"reward {formatting.number(reward)}" if record else "no rollout"
        self._reward.set_words("" if relative else words)
        plain = record.model_copy(update={"branches": []}) if record else None
        self.transcript.set_items(items_of(plain, blind=relative) if plain else [])


class ExamplesCard(Card):
    """Card with the examples: `show_checkpoint(step)` of the selected run, None for none."""

    def __init__(self, session: Session, tasks: TaskScope, parent: QWidget | None = None) -> None:
        super().__init__("Validation examples", " ", padding=0, parent=parent)
        self._session, self._tasks = session, tasks
        self._shown: tuple[object, ...] = ()
        self._steps = (0, 0)
        """Steps of the baseline's validation and of the checkpoint's."""
        self.model, self.table = ExamplesModel(self), Table("Validation examples")
        self.before, self.after = Answer(), Answer()
        self._none = Text(NO_CHECKPOINT, "body", tone="muted", wrap=True)
        self._none.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._stack = QStackedWidget()
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self._ask_answers)
        self._build()
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._soon.start(0))

    @Slot()
    def show_checkpoint(self, step: int | None) -> None:
        """Load example rollouts from the run's first validation and that of the checkpoint of
        `step`, unless they are shown already. `step` None, or no validation: show a sentence that
        says so."""
        run = self._session.run
        validated = [one.step for one in run.state.validations]
        at = validation_at(validated, step) if step is not None else None
        wanted = (run.run_id, step, at)
        if wanted == self._shown:
            return
        self._shown = wanted
        self._tasks.cancel("examples")
        self._tasks.cancel("answers")
        if step is None or at is None:
            self._say(NO_CHECKPOINT if step is None else NO_VALIDATION)
            return
        self._steps = (validated[0], at)
        done = lambda found: self._show_examples(step, found)  # noqa: E731
        self._tasks.run("examples", self._load(run.run_id, *self._steps), done, self._failed)

    async def _load(self, run_id: str, first: int, at: int) -> list[Example]:
        async def groups(step: int) -> Sequence[GroupSummary]:
            query = TrajectoryQuery(split="validation", step=step, limit=MOST_EXAMPLES)
            return (await self._session.client.groups(run_id, query)).items

        scores = judged_scores(self._session.run.state, first, at)
        return examples_of(await groups(first), await groups(at), scores)

    def _show_examples(self, step: int, found: list[Example]) -> None:
        at = self._steps[1]
        assert self.header is not None
        changed = sum(one.changed for one in found)
        when = "" if at == step else f" · validation after step {at}"
        self.header.set_words(f"step {step}: {changed} of {len(found)} answers changed{when}")
        self.model.set_rows(found)
        for column in (1, 2):  # rewards of a judged run are relative to their group
            self.table.setColumnHidden(column, any(one.judged for one in found))
        if not found:
            self._say(NO_VALIDATION)
            return
        self._stack.setCurrentIndex(1)
        self.table.selectRow(0)

    def _ask_answers(self) -> None:
        row = self.table.currentIndex().row()
        if not 0 <= row < len(self.model.rows):
            return
        one, run_id = self.model.rows[row], self._session.run.run_id

        async def ask() -> tuple[Trajectory | None, Trajectory | None]:
            return await self._first(run_id, one.before), await self._first(run_id, one.after)

        self._tasks.run("answers", ask(), self._show_answers)

    async def _first(self, run_id: str, group: GroupSummary | None) -> Trajectory | None:
        """Return the first rollout of a group."""
        if group is None:
            return None
        place = (group.split, group.step, group.group)
        siblings = await self._session.client.siblings(run_id, *place)
        return siblings.trajectories[0] if siblings.trajectories else None

    def _show_answers(self, found: tuple[Trajectory | None, Trajectory | None]) -> None:
        first, at = self._steps
        relative = any(one.judged for one in self.model.rows)
        self.before.show_answer("baseline" if first == 0 else f"step {first}", found[0], relative)
        self.after.show_answer(f"step {at}", found[1], relative)

    def _failed(self, problem: Problem) -> None:
        self._shown = ()
        self._say(f"{problem.message} {problem.hint}".strip())

    def _say(self, words: str) -> None:
        assert self.header is not None
        self.header.set_words("")
        self._none.set_words(words)
        self._stack.setCurrentIndex(0)

    def _build(self) -> None:
        self.table.setModel(self.model)
        for place, (width, kind) in enumerate(
            ((None, "strong"), (84, "mono"), (100, "mono"), (80, "mono"))
        ):
            self.table.set_column(place, width, kind)
        answers = QWidget()
        hbox((self.before, 1), (self.after, 1), parent=answers, spacing=1)
        both = QSplitter(Qt.Orientation.Vertical)
        both.setChildrenCollapsible(False)
        both.addWidget(self.table)
        both.addWidget(answers)
        both.setStretchFactor(0, 2)
        both.setStretchFactor(1, 3)
        none = QWidget()
        vbox(STRETCH, self._none, STRETCH, parent=none, margins=24)
        self._stack.addWidget(none)
        self._stack.addWidget(both)
        self.body.addWidget(self._stack)


def _judged(score: float | None) -> str:
    """Describe the judge's comparison with the baseline."""
    if score is None:
        return formatting.ABSENT
    return {0.0: "lost", 0.5: "tied", 1.0: "won"}.get(score, f"{formatting.percent(score)} won")
