"""Branch sheet: start a new run from a checkpoint, with changes or as an exact replay."""

import shlex
from collections.abc import Sequence
from typing import Any

from PySide6.QtWidgets import QWidget

from engine.protocol.records.runs import Checkpoint, RunSummary
from engine.protocol.requests.runs import StartRun
from studio.store.runs.state import RunState
from studio.text import formatting
from studio.widgets.controls.buttons import Button
from studio.widgets.controls.segmented import Segmented
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import ChoiceField, NumberField, SpinField
from studio.widgets.forms.run_request_sheet import OrderSheet
from studio.widgets.layouts import add
from studio.widgets.text.text import Text

WAYS = ("Continue training", "Replay exactly")
GO_ON = (
    "The branch starts as a copy of this run up to the chosen step, including "
    "trajectories, verdicts and labels. New steps use the current rubric and agent."
)
REPEAT = (
    "Repeats the updates after the chosen step from stored trajectories, without new sampling. "
    "Every checkpoint is compared byte for byte with the checkpoint of this run at the same step."
)
WEIGHTS = (
    "An RL run starts from the weights of this run, with the current project settings. Steps "
    "count from 0 and the optimizer is reset."
)
LABEL_PX = 132


class BranchSheet(OrderSheet):
    """Branch sheet: `show_run(run, state, step)`, then `open()`; emits `ordered(StartRun)`."""

    def __init__(self, host: QWidget) -> None:
        go = Button("Branch", "primary", icon="git-branch", height=32)
        super().__init__("Branch", host, go)
        self._project, self._name = "", ""
        self._finished = 0
        self._supervised = False
        self._state: RunState | None = None
        self._way = Segmented(WAYS, "Mode")
        self._words = Text(GO_ON, "label", 400, "muted", wrap=True)
        self._from = ChoiceField("Checkpoint")
        self._steps = SpinField("Total steps", 1, 1_000_000, step=10)
        self._lr = NumberField("Learning rate", 0.0, 1.0)
        self._seed = SpinField("Seed", 0, 2**31 - 1)
        self._where = Text("", "label", 400, "muted", wrap=True)
        self._line = FormRow("from", "After", self._from, label_px=LABEL_PX)
        self._rows = [
            FormRow("steps", "Total steps", self._steps, label_px=LABEL_PX),
            FormRow("lr", "Learning rate", self._lr, label_px=LABEL_PX),
            FormRow("seed", "Seed", self._seed, label_px=LABEL_PX),
        ]
        self._build()
        self._way.chosen.connect(lambda _: self._refresh())
        for field in (self._from, self._steps, self._lr, self._seed):
            field.edited.connect(lambda _: self._refresh())

    def show_run(self, run: RunSummary, state: RunState, step: int | None) -> None:
        """Show the checkpoints of a run; preselects `step` or the one before it (None: newest)."""
        self._project, self._name, self._state = run.project_path, run.name, state
        self._where.set_words(
            f"The new run starts on {run.host}, where {run.name} is stored." if run.host else ""
        )
        self._where.setVisible(bool(run.host))
        spec = state.spec
        assert spec is not None
        self._finished, self._supervised = state.done, spec.kind == "sft"
        self._way.setVisible(not self._supervised)
        if self._supervised:
            self._way.set_index(0)
        self.set_title(f"Start RL from {run.name}" if self._supervised else f"Branch {run.name}")
        self._from.set_choices(_choices(state.checkpoints, state))
        if self.turn_to((run.id, step)):
            self._fill(state, step)
        self._refresh()

    def _fill(self, state: RunState, step: int | None) -> None:
        assert state.spec is not None
        best = _best(state.checkpoints) if self._supervised and step is None else None
        self._from.set_value(_nearest(state.checkpoints, step) if best is None else best)
        train = state.spec.config.train
        planned = train.steps if self._supervised else max(train.steps, state.planned)
        begins = 0 if self._supervised else self._from.value()
        more = planned if planned > begins else planned + max(10, planned // 4)
        self._steps.set_value(more)
        self._lr.set_value(train.lr)
        self._seed.set_value(train.seed)

    def request(self) -> StartRun:
        step = int(self._from.value() or 0)
        replay = self._way.index() == 1
        overrides: dict[str, Any] = {}
        if not replay and self._state is not None and self._state.spec is not None:
            train = self._state.spec.config.train
            wanted = {"steps": self._steps.value(), "lr": self._lr.value()}
            wanted["seed"] = self._seed.value()
            overrides = {
                f"train.{name}": value
                for name, value in wanted.items()
                if value is not None and (self._supervised or value != getattr(train, name))
            }
        return StartRun(
            project=self._project,
            origin=f"{self._name}@{step}",
            overrides=overrides,
            replay=replay,
            queue=True,
        )

    def _build(self) -> None:
        add(self.body, self._way, self._words, self._where, self._line, *self._rows)
        self.add_end()

    def _refresh(self) -> None:
        replay = self._way.index() == 1
        step = 0 if self._supervised else int(self._from.value() or 0)
        self._words.set_words(WEIGHTS if self._supervised else REPEAT if replay else GO_ON)
        for row in self._rows:
            row.setVisible(not replay)
        left = max(0, (self._finished if replay else self._steps.value()) - step)
        behind = f"Nothing is stored after step {step}. Choose an earlier step."
        self._line.set_problem(behind if replay and not left else "")
        self._rows[0].set_problem(
            "" if replay or left else (f"Must exceed {step}, the start of the branch")
        )
        self._rows[1].set_problem("" if replay else self._lr.problem())
        self._go.setEnabled(left > 0 and (replay or not self._lr.problem()))
        verb = "Train" if self._supervised else "Replay" if replay else "Branch"
        self._go.set_words(verb, formatting.plural(left, "step"))
        self.show_command(command_of(self.request()))


def command_of(request: StartRun) -> str:
    """Return the `atelier` command line that starts the same run."""
    words = ["atelier train", shlex.quote(request.project), "--from", request.origin]
    words += [f"--set {key}={value:g}" for key, value in request.overrides.items()]
    return " ".join([*words, *(["--replay"] if request.replay else [])])


def _choices(kept: Sequence[Checkpoint], state: RunState) -> list[tuple[int, str]]:
    """Return (step, text) of the checkpoints, newest first, then of step 0."""
    tested = {record.step: record.reward for record in state.validations}
    found = []
    for one in reversed(kept):
        words = f"step {one.step}"
        if (rate := state.win_rates.get(one.step)) is not None:
            words += f" · win rate {formatting.percent(rate.mean)}"
        elif (reward := tested.get(one.step)) is not None:
            words += f" · validation {formatting.number(reward.mean)}"
        elif (mean := one.metrics.get("reward/mean")) is not None:
            words += f" · reward {formatting.number(mean)}"
        elif (loss := one.metrics.get("validation/loss")) is not None:
            words += f" · loss {formatting.number(loss, 3)}"
        found.append((one.step, words))
    if not any(step == 0 for step, _ in found):
        found.append((0, "the start, before any step"))
    return found


def _best(kept: Sequence[Checkpoint]) -> int | None:
    """Return the step with the lowest held-out loss (the earlier of equals), or None."""
    losses = {one.step: loss for one in kept if (loss := one.metrics.get("validation/loss"))}
    return min(losses, key=lambda step: (losses[step], step), default=None)


def _nearest(kept: Sequence[Checkpoint], step: int | None) -> int:
    """Return the newest checkpoint up to `step`, or the newest of all."""
    steps = [one.step for one in kept]
    if step is None:
        return max(steps, default=0)
    return max((one for one in steps if one <= step), default=0)
