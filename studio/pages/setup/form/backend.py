"""Backend card: sampler, trainer and weight precision; GPU settings are collapsed."""

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.project import BackendConfig, ProjectConfig, TrainConfig
from engine.protocol.records.machine.backends import BackendFacts
from engine.protocol.requests.clusters import ClusterView
from studio.pages.setup.form.fields import value_at
from studio.store.projects.backends import Note, notes, summary
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.forms.form_fields import (
    ChoiceField,
    Field,
    NumberField,
    SegmentedField,
    SpinField,
    ToggleField,
)
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.text.text import Text

LABEL_PX, CHOICE_PX = 128, 280
INSET_PX = 12
"""Indent that aligns the icon of a quiet button with the labels, px."""
CLUSTER = "backend.cluster"
NO_CLUSTER = ("", "None")
LABELS = {
    CLUSTER: "Cluster",
    "backend.sampler": "Sampler",
    "backend.trainer": "Trainer",
    "backend.weights": "Weights",
    "backend.recompute": "Activation checkpointing",
    "backend.processes": "Trainer processes",
    "backend.memory_share": "vLLM memory share",
    "backend.sleep": "vLLM releases",
    "train.staleness": "Staleness",
    "backend.share_card": "GPU in use",
}
CHOICES = {
    "backend.sampler": (("torch", "This process"), ("vllm", "vLLM server")),
    "backend.trainer": (("torch", "PyTorch"), ("unsloth", "Unsloth")),
    "backend.weights": (("full", "Full"), ("8bit", "8 bit"), ("4bit", "4 bit")),
}
MAIN = (CLUSTER, *CHOICES)
"""Settings that are not collapsed."""
SLEEPS = (
    ("auto", "based on the memory estimate"),
    ("off", "nothing"),
    ("cache", "the KV cache"),
    ("all", "all vLLM memory"),
)
REMEDIES = {
    "backend.weights": ("Train with Unsloth", {"backend.trainer": "unsloth"}),
    "backend.trainer": ("Use full weights", {"backend.weights": "full"}),
}
"""Setting → button and values (key → value) that make a refused combination valid."""
BOTH = "both"


class BackendCard(Card):
    """Backend card: `show_config(config)`, `show_facts(facts)`. Emits `edited(key, value)`,
    `values_chosen(values)` for dependent settings, and `link_activated(action)`."""

    edited = Signal(str, object)
    values_chosen = Signal(object)
    link_activated = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(padding=12, parent=parent)
        self.setAccessibleName("Backend")
        self._config: ProjectConfig | None = None
        self._facts: BackendFacts | None = None
        self._clusters: list[ClusterView] = []
        self._place: str | None = None
        """Cluster chosen in the header (empty: none); None if it is that of project.toml."""
        self._shown: tuple[str, list[Any]] | None = None
        """Project name and values (in order of `rows`) of the last update."""
        self._broken: set[str] = set()
        """Keys of settings with invalid values in project.toml."""
        self._folded = QWidget()
        self.rows = {key: self._row(key) for key in LABELS}
        self._more = Button("GPUs, memory, overlap", "quiet", icon="chevron-right", height=28)
        self._more.clicked.connect(lambda: self.unfold(self._folded.isHidden()))
        self._words = Text("", "label", 400, "muted", elide=True)
        self._build()

    def show_config(self, config: ProjectConfig) -> None:
        """Show stored values. A refused edit stays visible until a stored value changes, which may
        have resolved it."""
        self._config = config
        self._broken.clear()
        now = config.name, [value_at(config, key) for key in self.rows]
        self._offer_clusters()
        if now != self._shown:
            self._shown = now
            for row, value in zip(self.rows.values(), now[1], strict=True):
                row.entry.renew()
                row.show_stored(value)
            self._words.set_words(summary(config))
        self._show_notes()

    def show_facts(self, facts: BackendFacts | None) -> None:
        """Show the capabilities of the engine; None while unknown."""
        self._facts = facts
        self._show_notes()

    def show_clusters(self, clusters: list[ClusterView], chosen: str | None) -> None:
        """Show the clusters that can be selected. `chosen` is the one of the header if it differs
        from project.toml (empty: another machine), else None."""
        self._clusters, self._place = clusters, chosen
        if self._config is not None:
            self._offer_clusters()
            self._show_notes()

    def notes(self) -> dict[str, Note]:
        """Return dotted setting key → note; empty before a configuration is shown."""
        if self._config is None:
            return {}
        config = self._config
        if self._place is not None:
            backend = config.backend.model_copy(update={"cluster": self._place})
            config = config.model_copy(update={"backend": backend})
        name = config.backend.cluster
        view = next((one for one in self._clusters if one.spec.name == name), None)
        found = notes(config, self._facts, view)
        if self._place is not None:
            chosen = self._place or "another machine"
            note = found[CLUSTER]
            words = f"In the header, {chosen} is chosen. {note.words if self._place else ''}"
            found[CLUSTER] = replace(note, words=words.strip())
        return found

    def _offer_clusters(self) -> None:
        """Offer the listed clusters; without any, the row is hidden."""
        assert self._config is not None
        set_name = self._config.backend.cluster
        names = [view.spec.name for view in self._clusters]
        names += [set_name] if set_name and set_name not in names else []
        row = self.rows[CLUSTER]
        assert isinstance(row.field, ChoiceField)
        row.field.set_choices([NO_CLUSTER, *((name, name) for name in names)])
        row.show_stored(set_name)
        row.setVisible(bool(names or self._place))

    def show_problem(self, key: str, words: str) -> None:
        """Show a problem of project.toml at its setting until a valid file is loaded."""
        self._broken.add(key)
        self.rows[key].set_problem(words)
        if key not in MAIN:
            self.unfold(True)

    def set_problem(self, key: str, words: str) -> None:
        """Show why the edit of `key` was refused, with a button for another change that helps, if
        there is one; empty `words`: the edit was stored, remove the message."""
        remedy = REMEDIES.get(key) if words and self._is_half(key) else None
        self.rows[key].answer(words, (remedy[0], BOTH) if remedy else ("", ""))
        if words and key not in MAIN:
            self.unfold(True)

    def unfold(self, shown: bool) -> None:
        """Show or hide the settings."""
        self._folded.setVisible(shown)
        self._more.set_icon("chevron-down" if shown else "chevron-right")

    def _build(self) -> None:
        column = vbox(spacing=10)
        inner = vbox(parent=self._folded, spacing=10)
        for key in LABELS:
            (column if key in MAIN else inner).addWidget(self.rows[key])
        line = hbox(spacing=8)
        line.addSpacing(-INSET_PX)
        add(line, self._more, (self._words, 1))
        add(column, line, self._folded)
        self._folded.hide()
        self.body.addLayout(column)

    def _row(self, key: str) -> FormRow:
        field, help = _field(key), _help(key)
        row = FormRow(key, LABELS[key], field, help=help, label_px=LABEL_PX, at_once=True)
        row.entered.connect(self.edited)
        row.link_activated.connect(lambda link: self._follow(key, link))
        return row

    def _follow(self, key: str, link: str) -> None:
        if link == BOTH:
            self.values_chosen.emit({key: self.rows[key].field.value(), **REMEDIES[key][1]})
        else:
            self.link_activated.emit(link)

    def _is_half(self, key: str) -> bool:
        """Return whether an edit is valid only together with another setting in `REMEDIES`."""
        if self._config is None:
            return False
        backend, value = self._config.backend, self.rows[key].field.value()
        if key == "backend.weights":
            return value != "full" and backend.trainer == "torch"
        return bool(value == "torch" and backend.weights != "full")

    def _show_notes(self) -> None:
        for key, note in self.notes().items():
            if self.rows[key].entry.refused or key in self._broken:
                continue
            if note.tone == "bad":
                self.rows[key].set_problem(note.words, note.link)
            else:
                self.rows[key].set_note(note.words, note.tone, note.link)
            if note.matters and key not in MAIN:
                self.unfold(True)


def _help(key: str) -> str:
    """Return the documentation of a config field."""
    section, _, name = key.partition(".")
    fields = BackendConfig.model_fields if section == "backend" else TrainConfig.model_fields
    return f"{fields[name].description}\n\n{key}"


def _field(key: str) -> Field:
    label = LABELS[key]
    if key in CHOICES:
        return SegmentedField(label, CHOICES[key])
    if key == CLUSTER:
        return ChoiceField(label, [NO_CLUSTER], CHOICE_PX)
    if key == "backend.sleep":
        return ChoiceField(label, SLEEPS, CHOICE_PX)
    if key == "backend.memory_share":
        return _ShareField(label, placeholder="automatic")
    if key == "backend.recompute":
        return ToggleField(label, "Recompute activations instead of storing them")
    if key == "backend.share_card":
        return ToggleField(label, "Start even if other programs use GPU memory")
    low, high = (1, 8) if key == "backend.processes" else (0, 4)
    return SpinField(label, low, high)


class _ShareField(NumberField):
    """Number field for a share between 0 and 1, exclusive."""

    def problem(self) -> str:
        value = self.value()
        return "" if value is not None and 0 < value < 1 else "A share between 0 and 1"
