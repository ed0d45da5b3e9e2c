"""Checkpoints: what is kept of the selected run. Compare, chat and export are not built yet."""

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QObject, Qt, Slot
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from engine.protocol.records import Checkpoint
from studio import figures
from studio.actions import Actions
from studio.models.heads import head
from studio.models.paged import ROOT, Index
from studio.models.projects import ago
from studio.models.run import RunModel
from studio.pages.page import Page
from studio.roles import VALUE_ROLE
from studio.session import Session
from studio.widgets.card import Card
from studio.widgets.empty_page import EmptyPage
from studio.widgets.interval_axis import Interval
from studio.widgets.table import Table
from studio.widgets.text import Text

COLUMNS = ("Name", "Reward", "Validation, 95 %", "Size", "Age", "Folder")
RIGHT = (1, 3, 4)


class CheckpointTableModel(QAbstractTableModel):
    """Newest first. `UserRole` is the Checkpoint."""

    def __init__(self, run: RunModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._run = run
        self.rows: list[Checkpoint] = []

    @Slot()
    def refresh(self) -> None:
        rows = list(reversed(self._run.state.checkpoints))
        if rows != self.rows:
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        return head(COLUMNS, RIGHT, section, orientation, role)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self.rows):
            return None
        kept = self.rows[index.row()]
        if role == Qt.ItemDataRole.UserRole:
            return kept
        if role == VALUE_ROLE and index.column() == 2:
            return self._interval(kept)
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return self._words(kept, index.column())
        return None

    def _words(self, kept: Checkpoint, column: int) -> str:
        now = self._run.state.at
        return (
            f"step {kept.step}",
            figures.number(kept.metrics.get("reward/mean")),
            "",
            figures.size(kept.bytes),
            ago(kept.at, max(now, kept.at)),
            kept.path,
        )[column]

    def _interval(self, kept: Checkpoint) -> tuple[Interval, float, float] | None:
        for record in self._run.state.validations:
            if record.step == kept.step and record.reward is not None:
                reward = record.reward
                return Interval(reward.mean, reward.low, reward.high, "plot-1"), 0.0, 1.0
        return None


class CheckpointsPage(Page):
    """The list, once there is one."""

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._model = CheckpointTableModel(session.run, self)
        self._empty = EmptyPage("No checkpoint yet", "", drawing="rows")
        self._empty.action_requested.connect(lambda: actions.trigger("go.run"))
        self._stack = QStackedWidget()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self._list_part())
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._stack)
        session.run.changed.connect(self._refresh)

    def enter(self) -> None:
        self._refresh()

    def _list_part(self) -> QWidget:
        part = QWidget()
        column = QVBoxLayout(part)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        table = Table("Checkpoints")
        table.setModel(self._model)
        kinds = ("strong", "mono", "interval", "figure", "figure", "text")
        widths = (140, 90, 220, 110, 120, None)
        for place, (kind, width) in enumerate(zip(kinds, widths, strict=True)):
            table.set_column(place, width, kind)
        self._card = Card("Checkpoints", " ", padding=0)
        self._card.body.addWidget(table)
        column.addWidget(self._card, 1)
        words = (
            "Each is an adapter in the PEFT layout, verified when it was written. "
            "Compare, chat side by side and export come with a later version."
        )
        line = QHBoxLayout()
        line.addWidget(Text(words, "label", 400, "faint"))
        column.addLayout(line)
        return part

    @Slot()
    def _refresh(self) -> None:
        if not self.isVisible():
            return
        self._model.refresh()
        kept = self._model.rows
        self._stack.setCurrentIndex(1 if kept else 0)
        if kept:
            total = sum(checkpoint.bytes for checkpoint in kept)
            words = f"{len(kept)} · {figures.size(total)}"
            assert self._card.header is not None
            self._card.header.set_words(words)
        else:
            self._show_empty()

    def _show_empty(self) -> None:
        spec = self.session.run.state.spec
        every = spec.config.train.checkpoint_every if spec else None
        first = f"The first is kept after step {every}." if every else "Train makes the first one."
        words = f"{first} Here you will compare them, chat with them and export one."
        self._empty.set_words("No checkpoint yet", words)
        self._empty.set_actions("Watch the run", icon="activity")
