"""List of the models that can be compared, with actions for each row."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QMenu, QWidget

from engine.protocol.records.runs import KeptCheckpoint, RunSummary
from studio.pages.checkpoints.rows import CheckpointModel, Contender
from studio.store.runs.checkpoint_rows import baseline_of, best_of, marks_of, metric_at
from studio.store.runs.state import RunState
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button, IconButton
from studio.widgets.tables.table import Table

KL_COLUMN, SIZE_COLUMN, LEAST_PX, ROOMY_PX, CROWDED_PX = 4, 5, 600, 700, 900
WIDTHS = ((0, 40, "check"), (1, None, "strong"), (2, 76, "mono"), (3, 158, "interval"),
          (4, 64, "figure"), (5, 78, "figure"), (6, 96, "figure"))  # fmt: skip


class ListCard(Card):
    """Card with the list of checkpoints and models; its signals report user actions."""

    chosen_changed = Signal()
    target_changed = Signal()
    evaluate_wanted = Signal()
    export_wanted = Signal(object)
    branch_wanted = Signal(int)
    pin_wanted = Signal(int, bool)
    delete_wanted = Signal(int)
    add_wanted = Signal()
    forget_wanted = Signal(str)
    fetch_wanted = Signal(object)
    """Emitted with a row whose files are on a server; None cancels the current fetch."""
    refused = Signal(str)
    comparison_wanted = Signal()
    """The run of the checkpoints is to be compared with the run that it branched from."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Checkpoints", " ", padding=0, parent=parent)
        self.model, self.table = CheckpointModel(self), Table("Checkpoints")
        self.evaluate = Button("Evaluate", "outlined", icon="flask-conical", height=28)
        self._compare = Button("Compare with parent", "quiet", icon="git-compare-arrows", height=28)
        self._compare.hide()
        self._add = Button("Add a model", "quiet", icon="plus", height=28)
        self._fetch = Button("Fetch", "outlined", icon="download", height=28)
        self._stop = IconButton("x", "Stop fetching; the next fetch continues from here", size=28)
        self._save = Button("Export", "outlined", icon="package-check", height=28)
        self.table.setModel(self.model)
        for place, width, kind in WIDTHS:
            self.table.set_column(place, width, kind)
        self.table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        assert self.header is not None
        for button in (
            self._compare,
            self._add,
            self._fetch,
            self._stop,
            self._save,
            self.evaluate,
        ):
            self.header.add_right(button)
        self.body.addWidget(self.table)
        self._wire()

    def show_rows(
        self,
        summary: RunSummary,
        state: RunState,
        kept: Sequence[KeptCheckpoint],
        providers: Sequence[str],
    ) -> None:
        """Show the checkpoints of a run (`kept`), newest first, then the base model and
        `providers`, names of API models (PROVIDER/MODEL)."""
        rows = [
            Contender(
                name=f"{summary.id}@{one.checkpoint.step}",
                words=f"step {one.checkpoint.step}",
                step=one.checkpoint.step,
                kept=one,
                mean=one.checkpoint.metrics.get("reward/mean"),
                validation=one.win_rate or one.validation,
                compared=one.win_rate is not None,
                kl=metric_at(state, "kl", one.checkpoint.step),
                trained_s=state.trained_at(one.checkpoint.step),
                marks=marks_of(kept, one.checkpoint.step, bool(summary.host)),
                elsewhere=summary.host if one.state == "elsewhere" else "",
            )
            for one in reversed(kept)
        ]
        rows.append(
            Contender(
                "base", "base", 0, validation=baseline_of(state), compared=bool(state.win_rates)
            )
        )
        rows += [Contender(name, name) for name in providers]
        self.model.show_rows(rows, state.at)
        assert self.header is not None
        total = sum(one.checkpoint.bytes for one in kept)
        self.header.set_words(f"{len(kept)} · {formatting.size(total)}")
        self._show_fetch()
        self._show_export()
        if self.table.currentIndex().row() < 0:
            self.table.selectRow(0)

    def choose_first(
        self, run_id: str, kept: Sequence[KeptCheckpoint], remote: bool = False
    ) -> None:
        """Select the base model and the best checkpoint, or the newest if none is validated.
        `remote`: also consider checkpoints whose files are only on the server."""
        best = best_of(kept, remote)
        steps = [one.checkpoint.step for one in kept]
        step = best if best is not None else max(steps, default=None)
        self.model.choose(["base"] + ([f"{run_id}@{step}"] if step is not None else []))

    def set_branched(self, branched: bool) -> None:
        """Show the button "Compare with parent" for a branch (`branched`), else hide it."""
        self._compare.setVisible(branched)

    def show_coming(self, words: str, share: float | None) -> None:
        """Show the progress of a fetch (0 to 1, None: unknown); empty `words` hide it."""
        self._fetch.set_busy(words or None, share)
        self._stop.setVisible(bool(words))
        self._show_fetch()

    def _current(self) -> Contender | None:
        row = self.table.currentIndex().row()
        return self.model.rows[row] if 0 <= row < len(self.model.rows) else None

    def _show_fetch(self) -> None:
        """Show the Fetch button if the files of the current row are on a server."""
        one = self._current()
        away = one is not None and bool(one.elsewhere)
        self._fetch.setVisible(self._fetch.is_busy() or away)
        self._stop.setVisible(self._fetch.is_busy())
        if one is not None and one.kept is not None and not self._fetch.is_busy():
            self._fetch.set_words(f"Fetch {one.words}", formatting.size(one.kept.checkpoint.bytes))
        self._fit()

    def toggle(self, row: int) -> None:
        """Toggle the selection of a row; emit `refused` if four models are selected already."""
        if not self.model.toggle(row):
            self.refused.emit("At most four models can be compared. Deselect one first.")

    def toggle_name(self, name: str) -> None:
        """Toggle the selection of the row with the model name `name`; see `toggle`."""
        self.toggle(next(n for n, row in enumerate(self.model.rows) if row.name == name))

    def target(self) -> Contender | None:
        """Return the checkpoint that Export and the examples card use (None: no checkpoint): the
        current row if it is checked or none is, otherwise the one checked last."""
        checked = [one for one in self.model.chosen() if one.is_checkpoint]
        current = self._current()
        if current is not None and current.is_checkpoint and (current in checked or not checked):
            return current
        return checked[-1] if checked else None

    def want_export(self, row: int) -> None:
        """Request the export of the checkpoint in a row; other rows have nothing to export."""
        rows = self.model.rows
        if 0 <= row < len(rows) and rows[row].is_checkpoint:
            self.export_wanted.emit(rows[row])

    def _show_export(self) -> None:
        """Name the checkpoint that Export acts on, and its size; the sheet has those of formats.
        Emits `target_changed`."""
        one = self.target()
        size = formatting.size(one.kept.checkpoint.bytes) if one and one.kept else ""
        self._save.set_words(f"Export {one.words}" if one else "Export", size)
        self._save.setEnabled(one is not None and not one.damaged)
        set_tip(self._save, "" if one else "Select a checkpoint to export")
        self.target_changed.emit()

    def _export_target(self) -> None:
        if (one := self.target()) is not None:
            self.export_wanted.emit(one)

    def _wire(self) -> None:
        table = self.table
        table.row_marked.connect(self.toggle)
        table.row_opened.connect(self.want_export)
        table.clicked.connect(self._clicked)
        table.customContextMenuRequested.connect(self._menu)
        self.model.chosen_changed.connect(self.chosen_changed)
        self.evaluate.clicked.connect(self.evaluate_wanted)
        self._add.clicked.connect(self.add_wanted)
        self._compare.clicked.connect(self.comparison_wanted)
        self._fetch.clicked.connect(lambda: self.fetch_wanted.emit(self._current()))
        self._stop.clicked.connect(lambda: self.fetch_wanted.emit(None))
        table.selectionModel().currentRowChanged.connect(lambda *_: self._show_fetch())
        self._save.clicked.connect(self._export_target)
        self.model.chosen_changed.connect(self._show_export)
        table.selectionModel().currentRowChanged.connect(lambda *_: self._show_export())

    def _clicked(self, index: QModelIndex) -> None:
        if index.column() == 0:
            self.toggle(index.row())

    def _menu(self, place: QPoint) -> None:
        row = self.table.indexAt(place).row()
        if row < 0:
            return
        one, menu = self.model.rows[row], QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        first = menu.addAction("Use as the reference of the comparison")
        first.triggered.connect(lambda: self.model.make_baseline(row))
        if one.kept is not None and one.step is not None:
            step, pinned = one.step, "pinned" in one.kept.kept_by
            if one.elsewhere:
                size = formatting.size(one.kept.checkpoint.bytes)
                fetch = menu.addAction(f"Fetch from {one.elsewhere} · {size}")
                fetch.triggered.connect(lambda: self.fetch_wanted.emit(one))
            menu.addAction("Export…").triggered.connect(lambda: self.want_export(row))
            words = "Unpin" if pinned else "Pin: never delete automatically"
            pin = menu.addAction(words)
            pin.triggered.connect(lambda: self.pin_wanted.emit(step, not pinned))
            branch = menu.addAction("Branch here…")
            branch.triggered.connect(lambda: self.branch_wanted.emit(step))
            delete = menu.addAction(f"Delete · frees {formatting.size(one.kept.checkpoint.bytes)}")
            delete.setEnabled("newest" not in one.marks)
            delete.triggered.connect(lambda: self.delete_wanted.emit(step))
        elif not one.is_base:
            off = menu.addAction("Remove from the list")
            off.triggered.connect(lambda: self.forget_wanted.emit(one.name))
        menu.popup(self.table.viewport().mapToGlobal(place))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Hide the size column in a narrow window."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Show header buttons without text in a narrow window; hide the size column."""
        narrow = self.width() < ROOMY_PX
        crowded = not self._fetch.isHidden() and self.width() < CROWDED_PX
        assert self.header is not None
        self.header.words.setVisible(not narrow)
        self.table.setColumnHidden(SIZE_COLUMN, narrow)
        known = any(row.kl is not None for row in self.model.rows)
        self.table.setColumnHidden(KL_COLUMN, self.width() < LEAST_PX or not known)
        self._add.set_icon_only(narrow or crowded)
        self._compare.set_icon_only(narrow or crowded)
        self._save.set_icon_only(crowded)
