"""Setup form: five sections, derived settings, Advanced, and the equivalent command line."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QApplication, QHBoxLayout, QWidget

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.choices import ModelInfo
from engine.protocol.records.machine.backends import BackendFacts
from engine.protocol.records.machine.hardware import Check
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.clusters import ClusterView
from studio.pages.setup.form.advanced import AdvancedFold
from studio.pages.setup.form.backend import BackendCard
from studio.pages.setup.form.effort import EffortSlider
from studio.pages.setup.form.facts import effort_words, follows, model_words
from studio.pages.setup.form.method import MethodCard
from studio.pages.setup.form.section_row import ChoiceRow
from studio.store.projects.backends import Note
from studio.text import formatting
from studio.widgets.cards.card import Card, ChoiceCard
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import ChoiceField, PathField
from studio.widgets.forms.pending_field import Entry
from studio.widgets.layouts import STRETCH, add, hbox, vbox
from studio.widgets.text.text import Text

AGENT = "agent.file"
REVIEW_EVERY = 5
"""Default number of steps between reviews."""


class ChoicesForm(QWidget):
    """Setup form: `show_project(view)`, `show_problems(…)`. Emits `edited(key, value)`,
    `values_chosen(values)` and `preset_chosen(name)`."""

    edited = Signal(str, object)
    values_chosen = Signal(object)
    preset_chosen = Signal(str)
    link_activated = Signal(str)
    scenarios_wanted = Signal(str)
    models_wanted = Signal()
    agent_file_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._models: list[ModelInfo] = []
        self._model_checks: list[Check] = []
        self._problems: Sequence[Problem] = ()
        self._config: ProjectConfig | None = None
        self._path = ""
        """Path of the project shown."""
        self._column = vbox(parent=self, margins=(24, 0, 24, 24), spacing=0)
        self._model_row()
        self._agent_row()
        self._scenario_row()
        self._reward_row()
        self._effort_row()
        self._learning()
        self._where_it_computes()
        self._what_follows()
        self._every_setting()
        self._command()
        self._column.addStretch(1)

    # Rows

    def _row(self, number: int, name: str, words: str) -> ChoiceRow:
        row = ChoiceRow(number, name, words)
        self._column.addWidget(row)
        return row

    def _with_button(self, field: QWidget, words: str, icon: str, clicked: Any) -> QHBoxLayout:
        button = Button(words, "outlined", icon=icon, height=32)
        button.clicked.connect(clicked)
        line = hbox((field, 1), button, spacing=8)
        return line

    def _model_row(self) -> None:
        self._first = self._row(
            1, "Model", ("Base model; a LoRA adapter on all linear layers is trained.")
        )
        self._model = ChoiceField("Model")
        self._model.edited.connect(lambda value: self.edited.emit("model.name", value))
        line = self._with_button(self._model, "Browse…", "box", self.models_wanted)
        self._first.controls.addLayout(line)
        self._first.finish()

    def _agent_row(self) -> None:
        self._second = self._row(
            2, "Agent", "Your code. It calls the model with the base URL and API key from Atelier."
        )
        self._agent = PathField("Agent file", "agent.py", "Browse")
        self._agent_entry = Entry(self._agent)
        self._agent_entry.entered.connect(lambda value: self.edited.emit(AGENT, value))
        self._agent.browse_requested.connect(self.agent_file_wanted)
        self._second.controls.addWidget(self._agent)
        self._second.finish()

    def _scenario_row(self) -> None:
        self._third = self._row(3, "Scenarios", "Training and validation scenarios (JSONL).")
        self._train = ChoiceCard("train.jsonl", "", "training", icon="list-checks")
        self._validation = ChoiceCard("validation.jsonl", "", "validation", icon="flask-conical")
        self._train.pressed.connect(lambda: self.scenarios_wanted.emit("train"))
        self._validation.pressed.connect(lambda: self.scenarios_wanted.emit("validation"))
        self._third.controls.addLayout(_beside(self._train, self._validation))
        self._third.finish()

    def _reward_row(self) -> None:
        self._fourth = self._row(
            4, "Reward", ("Where the reward comes from. Parts are summed, then constraints apply.")
        )
        self._rules = ChoiceCard("Rules", "on", "", icon="list-checks", icon_tone="rules")
        self._judge = ChoiceCard("Judge", "off", "", icon="scale", icon_tone="judge")
        self._judge.pressed.connect(self._switch_judge)
        self._you = ChoiceCard("Labels", "off", "", icon="user-round", icon_tone="human")
        self._you.pressed.connect(self._switch_review)
        self._rules.set_chosen(True)
        self._fourth.controls.addLayout(_beside(self._rules, self._judge, self._you))
        self._fourth.finish()

    def _effort_row(self) -> None:
        self._fifth = self._row(
            5, "Effort", ("Number of steps; more steps take longer and train further.")
        )
        self._effort = EffortSlider()
        self._effort.steps_chosen.connect(lambda steps: self.edited.emit("train.steps", steps))
        self._fifth.controls.addWidget(self._effort)
        self._fifth.finish()

    def _learning(self) -> None:
        self._heading("Method", "how the model is updated from the rollouts of a step")
        self._method = MethodCard()
        self._method.preset_chosen.connect(self.preset_chosen)
        self._column.addWidget(self._method)

    def _what_follows(self) -> None:
        self._heading(
            "Derived settings", "computed from the settings above and the connected engine"
        )
        card = Card(padding=12)
        self._follows = KeyValues(3)
        card.body.addWidget(self._follows)
        self._column.addWidget(card)

    def _heading(self, title: str, words: str) -> None:
        head = hbox(
            Text(title, "label", 600),
            Text(words, "label", 400, "muted"),
            STRETCH,
            margins=(0, 16, 0, 8),
            spacing=10,
        )
        self._column.addLayout(head)

    def _where_it_computes(self) -> None:
        self._heading("Backend", "software that samples and trains")
        self._backend = BackendCard()
        self._backend.edited.connect(self.edited)
        self._backend.values_chosen.connect(self.values_chosen)
        self._backend.link_activated.connect(self.link_activated)
        self._column.addWidget(self._backend)

    def _every_setting(self) -> None:
        self._advanced = AdvancedFold()
        self._advanced.edited.connect(self.edited)
        self._column.addWidget(self._advanced)

    def _command(self) -> None:
        card = Card(padding=8)
        line = hbox(margins=(6, 0, 0, 0))
        self._line = Text("", "mono", elide=True)
        self._line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._copy = Button("Copy", "quiet", icon="copy", height=24)
        self._copy.clicked.connect(self._copied)
        add(line, (self._line, 1), self._copy)
        card.body.addLayout(line)
        add(self._column, 16, card)

    def _copied(self) -> None:
        QApplication.clipboard().setText(self._line.words())
        self._copy.set_words("Copied")
        QTimer.singleShot(1000, self, lambda: self._copy.set_words("Copy"))

    def _switch_review(self) -> None:
        """Toggle reviews; the interval is an advanced setting."""
        config = self._config
        if config is not None:
            every = 0 if config.train.review_every else REVIEW_EVERY
            self.edited.emit("train.review_every", every)

    def _switch_judge(self) -> None:
        if self._config is None:
            return
        if self._config.judge.models or self._config.judge.local:
            self.edited.emit("judge.enabled", not self._config.judge.enabled)
        else:
            self._fourth.say("Choose a judge on the Judge page first.", "info")

    # Display

    def add_tools(self, tools: QWidget) -> None:
        """Insert the widget of the agent's tools and packages below the agent file."""
        self._second.controls.insertWidget(1, tools)

    def set_models(self, models: Sequence[ModelInfo]) -> None:
        self._models = list(models)
        self._show_model()

    def show_model_checks(self, checks: Sequence[Check]) -> None:
        """Show the first check of the model, its chat format, at the model; the preflight has
        all."""
        self._model_checks = [check for check in checks if check.name not in ("Sandbox", "Cluster")]
        self._show_model()
        self.show_problems(self._problems)

    def show_project(self, view: ProjectView, command: str) -> None:
        """Fill the form and show the shell `command` that trains the project; an invalid project
        keeps the previous values."""
        self.show_command(command)
        if view.path != self._path:
            self._path = view.path
            for entry in self._entries():
                entry.forget()
        self._config = view.config or self._config
        config = view.config
        self.setEnabled(config is not None)
        if config is None:
            return
        self._show_model()
        self._show_agent(view, config)
        self._show_scenarios(view)
        self._show_reward(config)
        self._effort.set_steps(config.train.steps)
        self._fifth.say(effort_words(config))
        self._method.show_config(config)
        self._follows.set_values(follows(config))
        self._backend.show_config(config)
        self._show_outside(config.agent.source == "outside")
        self._advanced.show_config(config)

    def finish(self) -> None:
        """Commit text that is being edited."""
        for entry in self._entries():
            entry.finish()

    def _entries(self) -> list[Entry]:
        rows = [*self._advanced.rows.values(), *self._backend.rows.values()]
        return [self._agent_entry, *(row.entry for row in rows)]

    def _show_agent(self, view: ProjectView, config: ProjectConfig) -> None:
        self._agent_entry.show(config.agent.file)
        if self._agent_entry.refused:
            return
        tools = ", ".join(view.agent_tools)
        seen = (
            f"{formatting.plural(len(view.agent_tools), 'tool')} detected: {tools} · "
            if tools
            else ""
        )
        self._second.say(f"{seen}up to {formatting.plural(config.agent.max_turns, 'turn')}")

    def _show_outside(self, outside: bool) -> None:
        """Hide the settings that a training script defines."""
        for row, words in (
            (self._second, "A training script runs the rollouts."),
            (self._third, "The training script defines the scenarios."),
            (self._fifth, "The training script defines the number of steps."),
        ):
            row.setEnabled(not outside)
            if outside:
                row.say(words)

    def show_facts(self, facts: BackendFacts | None) -> None:
        """Show the capabilities of the engine; None while unknown."""
        self._backend.show_facts(facts)

    def show_command(self, command: str) -> None:
        """Show the shell command that trains the project."""
        self._line.set_words(command)

    def show_clusters(self, clusters: list[ClusterView], chosen: str | None) -> None:
        """Show the clusters of the backend card, like `BackendCard.show_clusters`."""
        self._backend.show_clusters(clusters, chosen)

    def notes(self) -> dict[str, Note]:
        """Return setting key → note of the backend settings."""
        return self._backend.notes()

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show problems at the controls of their settings (`where` begins with the key)."""
        rows = {
            "model": self._first,
            "agent": self._second,
            "scenarios": self._third,
            "reward": self._fourth,
            "judge": self._fourth,
            "rubric": self._fourth,
        }
        self._problems = problems
        for problem in problems:
            key = problem.where.split(":")[0]
            if key in self._advanced.keys:
                self._advanced.unfold(True)
                self._advanced.rows[key].set_problem(problem.message)
            elif key in self._backend.rows:
                self._backend.show_problem(key, problem.message)
            elif dial := rows.get(key.split(".")[0].split("/")[0]):
                dial.say(f"{problem.message} {problem.hint}".strip(), "bad")
            elif key.startswith("train.steps"):
                self._fifth.say(problem.message, "bad")

    def set_problem(self, key: str, words: str) -> None:
        """Show why the edit of a setting was refused; empty `words`: it was stored."""
        if key == AGENT:
            self._agent_entry.answered(bool(words))
        if key in self._advanced.keys:
            if words:
                self._advanced.unfold(True)
            if row := self._advanced.rows.get(key):
                row.answer(words)
        elif key in self._backend.rows:
            self._backend.set_problem(key, words)
        elif words:
            self.show_problems([Problem(code="config", message=words, where=key)])

    def set_locked(self, words: str) -> None:
        """Add the notice `words`, that edits apply only to the next run, to the note on steps;
        empty `words` remove it."""
        if self._config is not None:
            note = effort_words(self._config)
            if words:
                self._fifth.say(f"{note}. {words}", "info")
            else:
                self._fifth.say(note)

    def _show_model(self) -> None:
        if self._config is None:
            return
        name = self._config.model.name
        choices = [(model.name, model_words(model)) for model in self._models]
        if name not in {key for key, _ in choices}:
            choices.insert(0, (name, name))
        self._model.set_choices(choices)
        self._model.set_value(name)
        rank = self._config.model.rank
        words = f"Adapter of rank {rank}, {self._config.model.dtype} precision"
        if self._model_checks:
            first = self._model_checks[0]
            tone = "faint" if first.state == "good" else first.state
            self._first.say(f"{words} · {first.name}: {first.words}", tone)
        else:
            self._first.say(words)
        known = next((model for model in self._models if model.name == name), None)
        if known is not None and known.problem is not None:
            self._first.say(known.problem.message, "bad")

    def _show_scenarios(self, view: ProjectView) -> None:
        problems = []
        for card, split in ((self._train, "train"), (self._validation, "validation")):
            info = next((info for info in view.splits if info.split == split), None)
            words = "training" if split == "train" else "validation"
            card.set_values(formatting.count(info.count) if info else "none", words)
            problems += info.problems if info else []
        if problems:
            self._third.say(f"{problems[0].where}: {problems[0].message}", "bad")
        elif view.config is not None:
            train = view.config.train
            self._third.say(f"{train.groups} groups of {train.group_size} rollouts per step")

    def _show_reward(self, config: ProjectConfig) -> None:
        weights = config.reward.weights
        words = ", ".join(f"{n} × {w:g}" for n, w in weights.items()) or "from the agent"
        self._rules.set_values("on", words)
        judge = config.judge
        named = ", ".join(model.rpartition("/")[2] for model in judge.models)
        self._judge.set_values("on" if judge.enabled else "off", named or "no judge")
        self._judge.set_chosen(judge.enabled)
        every = config.train.review_every
        interval = (
            f"review every {formatting.ordinal(every)} step" if every > 1 else "review every step"
        )
        self._you.set_values("on" if every else "off", interval if every else "label at any time")
        self._you.set_chosen(every > 0)
        count = len(config.reward.constraints)
        self._fourth.say(
            f"{formatting.plural(count, 'constraint')} applied after the sum" if count else ""
        )


def _beside(*widgets: QWidget) -> QHBoxLayout:
    line = hbox(*((widget, 1) for widget in widgets), spacing=8)
    return line
