"""Advanced settings: all keys without a control above; changed values are shown as chips."""

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.protocol.config.presets import PRESETS
from engine.protocol.config.project import ProjectConfig
from studio.pages.setup.form.fields import (
    DIALS,
    changed,
    make_row,
    section_of,
    shown,
    specs,
    usual_values,
    value_at,
)
from studio.theme.plain_tooltips import set_tip
from studio.widgets.controls.buttons import Button
from studio.widgets.forms.form import FormRow
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.text.chip import FilterChip
from studio.widgets.text.chip_line import ChipLine
from studio.widgets.text.text import Text

MOST_CHIPS = 3
LONGEST = 28


class AdvancedFold(QWidget):
    """Advanced section, whose rows are created when it is first unfolded. Emits `edited(key,
    value)`; the value None restores the default."""

    edited = Signal(str, object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: dict[str, FormRow] = {}
        self.keys = {spec.key for spec in specs()} - DIALS
        self._config: ProjectConfig | None = None
        self._box = QWidget()
        self._fold = Button("Advanced", "quiet", icon="chevron-right", height=28)
        self._fold.clicked.connect(lambda: self.unfold(self._box.isHidden()))
        self._words = Text("", "label", 400, "muted")
        self._chips = ChipLine()
        self._build()

    def show_config(self, config: ProjectConfig) -> None:
        """Show the stored values, and the changed ones as chips."""
        self._config = config
        self._show_rows(config)
        different = changed(config)
        self._words.set_words(f"{len(self.keys)} settings, {len(different)} changed")
        chips = [self._chip(spec.key, spec.label, value) for spec, value in different[:MOST_CHIPS]]
        self._chips.set_chips(chips)

    def unfold(self, shown: bool) -> None:
        """Show or hide the settings."""
        if shown and not self.rows:
            self._fill()
            if self._config is not None:
                self._show_rows(self._config)
        self._box.setVisible(shown)
        self._fold.set_icon("chevron-down" if shown else "chevron-right")

    def _build(self) -> None:
        head = hbox(self._fold, self._words, (self._chips, 1), margins=(0, 12, 0, 4), spacing=8)
        column = vbox(head, parent=self, spacing=0)
        self._box.hide()
        column.addWidget(self._box)

    def _show_rows(self, config: ProjectConfig) -> None:
        usual = usual_values(config)
        title = PRESETS[config.train.algorithm.preset].title
        for key, row in self.rows.items():
            value, of_preset = value_at(config, key), value_at(usual, key)
            own = key.startswith("train.algorithm.") and value != of_preset
            row.show_stored(value, f"{title} uses {shown(of_preset)}" if own else "")

    def _fill(self) -> None:
        column = vbox(parent=self._box, margins=(12, 4, 0, 12), spacing=8)
        section = ""
        for spec in specs():
            if spec.key not in self.keys:
                continue
            if section_of(spec.key) != section:
                section = section_of(spec.key)
                add(column, 8, Text(section, "label", 600, "muted"))
            row = self.rows[spec.key] = make_row(spec)
            row.entered.connect(self.edited)
            column.addWidget(row)

    def _chip(self, key: str, label: str, value: Any) -> FilterChip:
        words = f"{label.lower()} {shown(value)}"
        chip = FilterChip(
            words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…", active=True
        )
        set_tip(chip, f"{key}; × restores the default")
        chip.removed.connect(lambda: self.edited.emit(key, None))
        chip.toggled.connect(lambda _: self.edited.emit(key, None))
        return chip
