"""Checkpoints: what is kept and why, compared, talked to, exported."""

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from engine.protocol.problems import Refused
from engine.protocol.records import LIVING, KeptCheckpoint
from engine.protocol.requests import PinCheckpoint
from studio import figures
from studio.actions import Actions
from studio.notify import Choice, ask
from studio.pages.checkpoints.arena import ArenaCard
from studio.pages.checkpoints.compare import CompareCard
from studio.pages.checkpoints.evaluating import EvaluationDesk
from studio.pages.checkpoints.export import ExportSheet
from studio.pages.checkpoints.rows import CheckpointModel, Contender
from studio.pages.page import Page
from studio.session import Session
from studio.store.contenders import (
    baseline_of,
    best_of,
    export_sizes,
    marks_of,
    metric_at,
)
from studio.widgets.buttons import Button
from studio.widgets.card import Card
from studio.widgets.empty_page import EmptyPage
from studio.widgets.form_fields import TextField
from studio.widgets.table import Table

GAP_PX = 12
LOADING_S = 10.0
"""About what it takes until a model answers."""
KL_COLUMN, SIZE_COLUMN, ROOMY_PX = 4, 5, 700
FIRST_SIZES, FIRST_WIDTHS = [336, 520], [700, 480]
NARROW_PX = 880
"""Below, the comparison stands under the table."""
WIDTHS = ((0, 40, "check"), (1, None, "strong"), (2, 64, "mono"), (3, 170, "interval"),
          (4, 64, "figure"), (5, 78, "figure"), (6, 96, "figure"))  # fmt: skip


class CheckpointsPage(Page):
    """`branch_wanted(step)` of the run that is looked at."""

    branch_wanted = Signal(int)

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions, self._run = actions, session.run
        self._kept: list[KeptCheckpoint] = []
        self._seen: tuple[object, ...] = ()
        self._desk = EvaluationDesk(session, self.tasks, self)
        self._chosen_for = ""
        self._model = CheckpointModel(self)
        self._table = Table("Checkpoints")
        self._card = Card("Checkpoints", " ", padding=0)
        self._compare, self._arena = CompareCard(), ArenaCard(session)
        self._evaluate = Button("Evaluate", "outlined", icon="flask-conical", height=28)
        self._export = ExportSheet(session, self)
        self._empty = EmptyPage("No checkpoint yet", "", drawing="rows")
        self._stack = QStackedWidget()
        self._top = QSplitter(Qt.Orientation.Horizontal)
        self._build()
        self._wire()

    def enter(self) -> None:
        self._seen = ()
        self._refresh()
        self._arena.load()
        self._fit_columns()

    async def close_tasks(self) -> None:
        await self._arena.close_tasks()
        await self._export.close_tasks()
        await super().close_tasks()

    # What is there

    @Slot()
    def _refresh(self) -> None:
        """Asks again where the run has said something new of its checkpoints."""
        if not self.isVisible():
            return
        state = self._run.state
        seen = (self._run.run_id, len(state.checkpoints), state.spoken, len(state.validations))
        if seen != self._seen and self._run.run_id:
            self._seen = seen
            run_id = self._run.run_id
            self.tasks.run("kept", self.session.client.checkpoints(run_id), self._take)
        self._stack.setCurrentIndex(
            1 if self._run.run_id and (self._kept or state.checkpoints) else 0
        )
        if not self._stack.currentIndex():
            self._show_empty()
        self._desk.follow()

    def _take(self, kept: Sequence[KeptCheckpoint]) -> None:
        self._kept = list(kept)
        self._show_rows()
        if self._chosen_for != self._run.run_id:
            self._chosen_for = self._run.run_id
            self._choose_first()
        self._refresh()

    def _show_rows(self) -> None:
        state, summary = self._run.state, self._run.summary
        if summary is None:
            return
        rows = [
            Contender(
                name=f"{summary.id}@{one.checkpoint.step}",
                words=f"step {one.checkpoint.step}",
                step=one.checkpoint.step,
                kept=one,
                mean=one.checkpoint.metrics.get("reward/mean"),
                validation=one.validation,
                kl=metric_at(state, "kl", one.checkpoint.step),
                marks=marks_of(self._kept, one.checkpoint.step),
            )
            for one in reversed(self._kept)
        ]
        rows.append(Contender("base", "base", 0, validation=baseline_of(state)))
        rows += [Contender(name, name) for name in self._providers()]
        self._model.show_rows(rows, state.at)
        self._table.setColumnHidden(KL_COLUMN, all(row.kl is None for row in rows))
        total = sum(one.checkpoint.bytes for one in self._kept)
        assert self._card.header is not None
        self._card.header.set_words(f"{len(self._kept)} · {figures.size(total)}")
        if self._table.currentIndex().row() < 0 and rows:
            self._table.selectRow(0)

    def _choose_first(self) -> None:
        """The base, and the best, or the newest."""
        best = best_of(self._kept)
        steps = [one.checkpoint.step for one in self._kept]
        step = best if best is not None else max(steps, default=None)
        names = ["base"] + ([f"{self._run.run_id}@{step}"] if step is not None else [])
        self._model.choose(names)

    def _providers(self) -> list[str]:
        return list(self.session.settings.current.compared_models)

    def _show_empty(self) -> None:
        summary, spec = self._run.summary, self._run.state.spec
        every = spec.config.train.checkpoint_every if spec else None
        first = f"The first is kept after step {every}." if every else "Train makes the first one."
        words = f"{first} Here you compare them, talk to them and export one."
        self._empty.set_words("No checkpoint yet", words)
        if summary is not None and summary.state in LIVING and summary.kind == "train":
            self._empty.set_actions("Keep one now", icon="layers", second="Watch the run")
        else:
            self._empty.set_actions("Watch the run", icon="activity")

    def _begin(self) -> None:
        living = self._run.summary is not None and self._run.summary.state in LIVING
        self._actions.trigger("run.keep" if living else "go.run")
        if living:
            self.session.said.emit("A checkpoint is kept after this step.")

    # Comparison

    def _show_comparison(self) -> None:
        result = self._desk.result
        if result is not None and result.standings:
            self._compare.show_evaluated(result, self._names())
        else:
            self._compare.show_tested(self._model.chosen())

    def _show_evaluate(self) -> None:
        if (living := self._desk.living) is not None:
            share = living.trajectories / max(1, living.attempts)
            words = f"{living.trajectories} of {living.attempts} attempts"
            self._evaluate.set_busy(words, share)
            return
        self._evaluate.set_busy(None)
        chosen = self._model.chosen()
        attempts, seconds = self._work(len(chosen))
        price = figures.plural(attempts, "attempt")
        price += f" · ≈ {figures.duration(seconds)}" if seconds else ""
        self._evaluate.set_words(f"Evaluate {len(chosen)}", price if chosen else "")
        self._evaluate.setEnabled(len(chosen) > 0 and self.session.connected)

    def _work(self, contenders: int) -> tuple[int, float | None]:
        """Attempts of an evaluation, and seconds where a test has shown how long one takes."""
        view = self.session.project.view
        config = view.config if view else None
        splits = view.splits if view else []
        scenarios = sum(info.count for info in splits if info.split == "validation")
        each = scenarios * (config.evaluate.attempts if config else 1)
        tests = [r for r in self._run.state.validations if r.seconds and r.scenarios]
        if not tests or config is None:
            return each * contenders, None
        made = len(tests[-1].scenarios) * config.train.validation_attempts
        one = tests[-1].seconds / max(1, made)
        return each * contenders, (one * each + LOADING_S) * contenders

    def _show_evaluation(self) -> None:
        self._show_evaluate()
        self._show_comparison()

    def _press_evaluate(self) -> None:
        if self._desk.living is not None:
            self._desk.stop()
        else:
            self._desk.start([one.name for one in self._model.chosen()])

    def _open_attempts(self) -> None:
        if self._desk.newest is not None:
            self.session.open_run(self._desk.newest, "trajectories")

    # Choosing

    def _chosen_changed(self) -> None:
        self._arena.show_models([one.name for one in self._model.chosen()], self._names())
        self._show_evaluation()

    def _names(self) -> dict[str, str]:
        """How models are called here, by what the engine calls them: with the run's id, or name."""
        name = self._run.summary.name if self._run.summary else ""
        words = {row.name: row.words for row in self._model.rows}
        return words | {
            f"{name}@{row.step}": row.words for row in self._model.rows if row.is_checkpoint
        }

    def _clicked(self, index: QModelIndex) -> None:
        if index.column() == 0:
            self._toggle(index.row())

    def _toggle(self, row: int) -> None:
        if not self._model.toggle(row):
            self.session.said.emit("Four are compared at most: take one out first.")

    def _row_menu(self, place: QPoint) -> None:
        row = self._table.indexAt(place).row()
        if row < 0:
            return
        one, menu = self._model.rows[row], QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        menu.addAction("Compare the others with this").triggered.connect(
            lambda: self._model.make_baseline(row)
        )
        if one.kept is not None and one.step is not None:
            step, pinned = one.step, "pinned" in one.kept.kept_by
            menu.addAction("Export…").triggered.connect(lambda: self._open_export(row))
            words = "Unpin" if pinned else "Pin: keep it whatever the rules say"
            menu.addAction(words).triggered.connect(lambda: self._pin(step, not pinned))
            menu.addAction("Branch here…").triggered.connect(lambda: self.branch_wanted.emit(step))
            delete = menu.addAction(f"Delete · frees {figures.size(one.kept.checkpoint.bytes)}")
            delete.setEnabled("newest" not in one.marks)
            delete.triggered.connect(lambda: self._delete(step))
        elif not one.is_base:
            menu.addAction("Take it off the list").triggered.connect(lambda: self._forget(one.name))
        menu.popup(self._table.viewport().mapToGlobal(place))

    def _open_export(self, row: int) -> None:
        """Of a row; of the best checkpoint where the row is none."""
        summary, rows = self._run.summary, self._model.rows
        if not 0 <= row < len(rows) or not rows[row].is_checkpoint:
            row = next((n for n, one in enumerate(rows) if "best" in one.marks), 0)
        step = rows[row].step if rows else None
        if summary is not None and step is not None and rows[row].is_checkpoint:
            sizes = export_sizes(self._run.state, rows[row].kept)
            self._export.show_checkpoint(summary.id, summary.name, step, sizes)
            self._export.open()

    def _pin(self, step: int, pinned: bool) -> None:
        run_id = self._run.run_id
        self._change(self.session.client.pin_checkpoint(run_id, step, PinCheckpoint(pinned=pinned)))

    def _delete(self, step: int) -> None:
        async def sure() -> None:
            choices = [Choice("", "Keep it"), Choice("delete", "Delete it", "danger")]
            words = "The attempts and the other checkpoints stay. It cannot be brought back."
            answer, _ = await ask(self.window(), f"Delete step {step}?", words, choices)
            if answer == "delete":
                await self.session.client.delete_checkpoint(self._run.run_id, step)

        self._change(sure())

    def _change(self, work) -> None:  # type: ignore[no-untyped-def]
        def again(_: object) -> None:
            self._seen = ()
            self._refresh()

        self.tasks.run("change", work, again)

    # A model of a provider

    def _add_model(self) -> None:
        self.tasks.run("add", self._ask_model())

    async def _ask_model(self) -> None:
        field = TextField("Model", "openai/gpt-5.4-mini", mono=True)
        choices = [Choice("", "Leave it"), Choice("add", "Add it", "primary")]
        words = (
            "As litellm names it. Its key is taken from Settings or the environment, and "
            "evaluate.budget_usd limits what an evaluation may cost."
        )
        answer, name = await ask(self.window(), "Compare with another model", words, choices, field)
        name = str(name or "").strip()
        if answer != "add" or not name:
            return
        if "/" not in name:
            hint = "Write PROVIDER/MODEL, as openai/gpt-5.4-mini or ollama_chat/llama3.2."
            raise Refused.of("studio.model_name", f"{name} names no provider.", hint)
        known = [one for one in self._providers() if one != name]
        self.session.settings.update(compared_models=[*known, name])
        self._show_rows()
        place = next(n for n, row in enumerate(self._model.rows) if row.name == name)
        self._toggle(place)

    def _forget(self, name: str) -> None:
        kept = [one for one in self._providers() if one != name]
        self.session.settings.update(compared_models=kept)
        self._show_rows()

    # Building

    def _build(self) -> None:
        self._table.setModel(self._model)
        for place, width, kind in WIDTHS:
            self._table.set_column(place, width, kind)
        self._table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._add = Button("Add a model", "quiet", icon="plus", height=28)
        assert self._card.header is not None
        self._save = Button("Export", "outlined", icon="package-check", height=28)
        self._card.header.add_right(self._add)
        self._card.header.add_right(self._save)
        self._card.header.add_right(self._evaluate)
        self._card.body.addWidget(self._table)
        self._top.addWidget(self._card)
        self._top.addWidget(self._compare)
        self._top.setProperty("gap", True)
        self._top.setHandleWidth(GAP_PX)
        self._top.setStretchFactor(0, 5)
        self._top.setStretchFactor(1, 4)
        self._top.setSizes(FIRST_WIDTHS)
        self.remember_splitter("checkpoints/top", self._top)
        whole = QSplitter(Qt.Orientation.Vertical)
        whole.setProperty("gap", True)
        whole.setHandleWidth(GAP_PX)
        whole.addWidget(self._top)
        whole.addWidget(self._arena)
        whole.setStretchFactor(0, 2)
        whole.setStretchFactor(1, 3)
        whole.setSizes(FIRST_SIZES)
        self.remember_splitter("checkpoints/whole", whole)
        part = QWidget()
        inside = QVBoxLayout(part)
        inside.setContentsMargins(16, 16, 16, 16)
        inside.addWidget(whole)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(part)
        column = QHBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._stack)

    def _wire(self) -> None:
        self._run.changed.connect(self._refresh)
        self._run.selected.connect(self._selected)
        self.session.runs_changed.connect(self._refresh)
        self._table.row_marked.connect(self._toggle)
        self._table.row_opened.connect(self._open_export)
        self._save.clicked.connect(lambda: self._open_export(self._table.currentIndex().row()))
        self._table.clicked.connect(self._clicked)
        self._table.customContextMenuRequested.connect(self._row_menu)
        self._model.chosen_changed.connect(self._chosen_changed)
        self._evaluate.clicked.connect(self._press_evaluate)
        self._add.clicked.connect(self._add_model)
        self._desk.changed.connect(self._show_evaluation)
        self._compare.attempts_wanted.connect(self._open_attempts)
        self._empty.action_requested.connect(self._begin)
        self._top.splitterMoved.connect(lambda *_: self._fit_columns())
        self._empty.second_requested.connect(lambda: self._actions.trigger("go.run"))
        self._arena.problem_raised.connect(self.session.problem_raised)

    @Slot()
    def _selected(self) -> None:
        self._kept = []
        self._seen = ()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW_PX
        wanted = Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal
        if self._top.orientation() != wanted:
            self._top.setOrientation(wanted)
        self._fit_columns()

    def _fit_columns(self) -> None:
        """Where it is narrow the size goes: the marks of a row say more."""
        narrow = self._table.width() < ROOMY_PX
        self._table.setColumnHidden(SIZE_COLUMN, narrow)
        self._add.set_icon_only(narrow)
