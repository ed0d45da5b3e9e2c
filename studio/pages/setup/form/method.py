"""Method card: algorithm preset, when to use it, derived figures, deviations."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.presets import PRESETS
from engine.protocol.config.project import ProjectConfig
from studio.pages.setup.form.fields import label_of
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.cards.key_values import KeyValues
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form_fields import ChoiceField
from studio.widgets.layouts import hbox, vbox
from studio.widgets.text.text import Text

KEY = "train.algorithm.preset"


class MethodCard(Card):
    """Method card: `show_config(config)`; emits `preset_chosen(name)`, which resets all values."""

    preset_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(padding=12, parent=parent)
        self._choice = ChoiceField("Method", [(n, p.title) for n, p in PRESETS.items()])
        self._choice.editor.setFixedWidth(148)
        self._choice.edited.connect(lambda name: self.preset_chosen.emit(name))
        self._when = Text("", "label", 400, "muted", wrap=True)
        self._differs = Text("", "caption", 400, "info", wrap=True)
        self._back = Button("Restore defaults", "quiet", icon="undo-2", height=24)
        self._back.clicked.connect(lambda: self.preset_chosen.emit(self._choice.value()))
        self._numbers = KeyValues(2)
        self.setAccessibleName("Method")
        self._build()

    def _build(self) -> None:
        head = hbox(self._choice, (self._when, 1), spacing=12)
        self._own = QWidget()
        hbox((self._differs, 1), self._back, parent=self._own, spacing=8)
        column = vbox(head, self._own, self._numbers, spacing=8)
        self.body.addLayout(column)

    def show_config(self, config: ProjectConfig) -> None:
        algorithm = config.train.algorithm
        preset = PRESETS[algorithm.preset]
        self._choice.set_value(algorithm.preset)
        self._when.set_words(preset.when)
        own = deviations(algorithm)
        self._own.setVisible(bool(own))
        self._differs.set_words(f"Differs from {preset.title} in {_listed(own)}." if own else "")
        self._numbers.set_values(numbers(config))


def deviations(algorithm: Algorithm) -> list[str]:
    """Return the keys of settings that differ from the preset."""
    plain = Algorithm(preset=algorithm.preset)
    names = Algorithm.model_fields
    return [name for name in names if getattr(algorithm, name) != getattr(plain, name)]


def numbers(config: ProjectConfig) -> list[tuple[str, str]]:
    """Return figures per step (rollouts, tokens, optimizer steps) as (name, value) rows."""
    train, algorithm = config.train, config.train.algorithm
    attempts = train.groups * train.group_size
    most = attempts * (1 + algorithm.refills)
    upto = f", up to {formatting.count(most)}" if most > attempts else ""
    per_attempt = min(train.max_tokens * config.agent.max_turns, config.model.max_context)
    total = train.steps * algorithm.updates
    passes = algorithm.extra_passes
    each = f"{algorithm.updates} per step, " if algorithm.updates > 1 else ""
    return [
        ("Rollouts per step", f"{formatting.count(attempts)}{upto}"),
        ("Trained tokens per step", f"≤ {formatting.count(attempts * per_attempt)}"),
        ("Optimizer steps", f"{each}{formatting.count(total)} in all"),
        ("Extra forward passes", f"{len(passes)}: {', '.join(passes)}" if passes else "none"),
    ]


def _listed(names: list[str]) -> str:
    words = [label_of(name) for name in names]
    words = [word if word[:2].isupper() else word.lower() for word in words]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
