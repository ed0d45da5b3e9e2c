"""Sheet that plans and starts a sweep."""

import json
import tomllib
from typing import Any

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.sweep import Range
from engine.protocol.problems import Problem
from engine.protocol.records.sweeps import SweepPlan
from studio.text import formatting
from studio.widgets.cards.sheet import Sheet
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import NumberField, SegmentedField, SpinField, ToggleField
from studio.widgets.forms.text_area import TextArea
from studio.widgets.layouts import STRETCH, add
from studio.widgets.text.text import Text

EXAMPLE = "train.lr = [1e-5, 3e-5, 1e-4]\ntrain.group_size = [4, 8]"
PAUSE_MS = 400
METHODS = (("grid", "Grid"), ("random", "Random"), ("tpe", "TPE"))


class SweepSheet(Sheet):
    """Sweep sheet: `show_project(config)`. Emits `plan_wanted(overrides)` after changes and
    `start_wanted(overrides)`; the receiver calls `show_plan`, `refuse` or `close_started`."""

    plan_wanted = Signal(object)
    start_wanted = Signal(object)

    def __init__(self, host: QWidget) -> None:
        super().__init__("New sweep", host)
        self._space = TextArea("Settings and their values", EXAMPLE, mono=True, least_px=84)
        self._method = SegmentedField("Search", METHODS)
        self._trials = SpinField("Trials", 1, 10_000)
        self._seeds = SpinField("Seeds per trial", 1, 64)
        self._steps = SpinField("Steps per run", 1, 1_000_000)
        self._prune = ToggleField("Pruning", "Stop underperforming runs early")
        self._hours = NumberField("Time budget in hours", 0, None, "no limit")
        self._plan = Text("", "label", 400, "muted", wrap=True)
        self._go = Button("Start sweep", "primary", icon="play", height=32)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(PAUSE_MS)
        self._wait.timeout.connect(self._want_plan)
        rows: list[Any] = [
            Text("Settings and their values, one per line", "label", 500),
            self._space,
            Text(
                "A list, or a range: { low = 1e-5, high = 1e-3, log = true }",
                "caption",
                tone="muted",
                wrap=True,
            ),
        ]
        for title, field in (
            ("Search", self._method),
            ("Trials", self._trials),
            ("Seeds per trial", self._seeds),
            ("Steps per run", self._steps),
            ("Pruning", self._prune),
            ("Time budget, hours", self._hours),
        ):
            rows += [Text(title, "label", 500), field]
            field.edited.connect(lambda _: self._changed())
        add(self.body, *rows, self._plan, STRETCH)
        self._space.edited.connect(self._changed)
        cancel = Button("Cancel", "quiet", height=32)
        cancel.clicked.connect(self.close_sheet)
        self._go.clicked.connect(self._start)
        add(self.foot, STRETCH, cancel, self._go)

    def show_project(self, config: ProjectConfig) -> None:
        """Open the sheet with earlier entries or, if there are none, with the sweep in
        project.toml, else an example."""
        sweep = config.sweep
        if not self._space.text():
            lines = [_line(key, values) for key, values in sweep.parameters.items()]
            self._space.set_text("\n".join(lines) or EXAMPLE)
            self._method.set_value(sweep.method if lines else "grid")
            self._trials.set_value(sweep.trials or 20)
            self._seeds.set_value(sweep.seeds)
            self._steps.set_value(config.train.steps)
            self._prune.set_value(sweep.prune == "halving")
        self.open()
        self._changed()

    def overrides(self) -> dict[str, Any]:
        """Return the entered settings by dotted key. Raises ValueError for text that is no TOML."""
        method = self._method.value()
        found = {
            "sweep.parameters": tomllib.loads(self._space.text()),
            "sweep.method": method,
            "sweep.seeds": self._seeds.value(),
            "sweep.prune": "halving" if self._prune.value() else "none",
            "train.steps": self._steps.value(),
        }
        if method != "grid":
            found["sweep.trials"] = self._trials.value()
        if (hours := self._hours.value()) is not None:
            found["sweep.budget_hours"] = hours
        return found

    def show_plan(self, plan: SweepPlan) -> None:
        """Show the number of trials, runs and steps of a valid sweep, and enable Start sweep."""
        runs = plan.trials * plan.seeds
        words = (
            f"{formatting.plural(plan.trials, 'trial')} × {formatting.plural(plan.seeds, 'seed')}"
        )
        pruned = ", fewer with pruning" if plan.prune_at else ""
        total = f"{formatting.plural(runs, 'run')}, {formatting.plural(plan.steps, 'step')}{pruned}"
        self._say(f"{words} = {total}. Compared by {_metric(plan)}.", "muted")
        self._go.setEnabled(True)

    def refuse(self, problem: Problem) -> None:
        """Show why the sweep cannot be started."""
        self._go.set_busy(None)
        self._say(f"{problem.message} {problem.hint}".strip(), "bad")
        self._go.setEnabled(False)

    def close_started(self) -> None:
        self._go.set_busy(None)
        self.close_sheet()

    def _say(self, words: str, tone: str) -> None:
        self._plan.set_words(words)
        self._plan.set_tone(tone)

    def _changed(self) -> None:
        self._trials.setEnabled(self._method.value() != "grid")
        self._go.setEnabled(False)
        self._wait.start()

    def _want_plan(self) -> None:
        try:
            self.plan_wanted.emit(self.overrides())
        except ValueError as error:
            self._say(f"The settings are not valid TOML: {error}.", "bad")

    def _start(self) -> None:
        if not self._go.is_busy():
            self._go.set_busy("Starting")
            self.start_wanted.emit(self.overrides())


def _metric(plan: SweepPlan) -> str:
    rates = plan.metric == "validation/win_rate"
    return "win rate against the baseline" if rates else "validation reward"


def _line(key: str, values: Any) -> str:
    """Return the line of TOML for a swept setting; JSON values are valid TOML."""
    if isinstance(values, Range):
        fields = values.model_dump(exclude_defaults=True, exclude_none=True)
        return f"{key} = {{ {', '.join(f'{n} = {json.dumps(v)}' for n, v in fields.items())} }}"
    return f"{key} = [{', '.join(map(json.dumps, values))}]"
