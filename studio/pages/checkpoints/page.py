"""Checkpoints page: list, comparison, side-by-side chat and export."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QStackedWidget, QWidget

from engine.protocol.problems import Problem, Refused
from engine.protocol.records.runs import ACTIVE_STATES, TRAINING_KINDS, KeptCheckpoint
from engine.protocol.requests.runs import PinCheckpoint
from studio.actions.actions import Actions
from studio.pages.checkpoints.arena import ArenaCard
from studio.pages.checkpoints.checkpoint_list import ListCard
from studio.pages.checkpoints.compare import CompareCard
from studio.pages.checkpoints.download import DownloadQueue
from studio.pages.checkpoints.evaluations import EvaluationController
from studio.pages.checkpoints.examples import ExamplesCard
from studio.pages.checkpoints.export import ExportSheet
from studio.pages.checkpoints.inspect_export import InspectExport
from studio.pages.checkpoints.prompt_sheet import PromptSheet
from studio.pages.checkpoints.rows import Contender
from studio.pages.page import Page
from studio.services.notifications import Choice, ask
from studio.services.session import Session
from studio.store.runs.chat import TurnPrompt
from studio.store.runs.checkpoint_rows import export_sizes
from studio.text import formatting
from studio.widgets.cards.beside import Beside
from studio.widgets.cards.empty_page import EmptyPage
from studio.widgets.forms.form_fields import TextField
from studio.widgets.layouts import hbox, vbox

GAP_PX = 12
LOADING_S = 10.0
"""Typical time to load a model, in seconds."""
FIRST_SIZES, FIRST_WIDTHS = [336, 520], [700, 480]
NARROW_PX = 880
"""Width below which the comparison moves below the table."""


class CheckpointsPage(Page):
    """Checkpoints page; emits `branch_wanted(step)` for the selected run."""

    branch_wanted = Signal(int)

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions, self._run = actions, session.run
        self._kept: list[KeptCheckpoint] = []
        self._seen: tuple[object, ...] = ()
        self._evaluation = EvaluationController(session, self.tasks, self)
        self._fetches = DownloadQueue(session, self.tasks, self)
        self._chosen_for = ""
        self._missed = False
        self._list = ListCard()
        self._model = self._list.model
        self._compare, self._arena = CompareCard(), ArenaCard(session)
        self._logs = InspectExport(session, self.tasks, self._compare.export, self._evaluation)
        self.examples = ExamplesCard(session, self.tasks)
        self._lower = Beside(("Examples", self.examples), ("Side-by-side chat", self._arena), 1)
        self._evaluate = self._list.evaluate
        self._export = ExportSheet(session, self)
        self.prompt_sheet = PromptSheet(self)
        self._empty = EmptyPage("No checkpoint yet", "", drawing="rows")
        self._stack = QStackedWidget()
        self._top = QSplitter(Qt.Orientation.Horizontal)
        self._build()
        self._wire()

    def enter(self) -> None:
        """Reload; if the selected run is no training (evaluation, chat), select the newest one."""
        summary = self._run.summary
        if summary is not None and summary.kind not in TRAINING_KINDS:
            runs = self.session.runs.of(self.session.project.path)
            trained = next((run for run in runs if run.kind in TRAINING_KINDS), None)
            if trained is not None:
                self.session.select_run(trained.id)
        self._seen = ()
        self._refresh()
        self._evaluation.follow()
        self._arena.load()

    async def close_tasks(self) -> None:
        await self._arena.close_tasks()
        await self._export.close_tasks()
        await super().close_tasks()

    def open_prompt(self, prompt: TurnPrompt) -> None:
        """Show a prompt in the side-by-side chat, to be answered by the selected models."""
        self._arena.show_prompt(prompt)
        self._lower.show_part(1)
        self._seen = ()
        self._refresh()

    # List of checkpoints

    @Slot()
    def _refresh(self) -> None:
        """Reload the list when the checkpoints of the run have changed."""
        if not self.isVisible():
            return
        state = self._run.state
        if self._run.damaged:
            self._kept = []
        seen = (
            self._run.run_id,
            self._run.damaged,
            len(state.checkpoints),
            state.spoken,
            len(state.validations),
        )
        if seen != self._seen and self._run.run_id and not self._run.damaged:
            self._seen = seen
            run_id = self._run.run_id
            ask = self.session.client.checkpoints(run_id)
            self.tasks.run("kept", ask, self._take, self._not_taken)
        listed = bool(self._kept or state.checkpoints)
        self._stack.setCurrentIndex(
            1 if self._run.run_id and (listed or self._arena.has_prompt) else 0
        )
        if not self._stack.currentIndex():
            self._show_empty()

    def _take(self, kept: Sequence[KeptCheckpoint]) -> None:
        self._kept = list(kept)
        self._show_rows()
        if self._model.rows and self._chosen_for != self._run.run_id:
            self._chosen_for = self._run.run_id
            remote = bool(self._run.summary and self._run.summary.host)
            self._list.choose_first(self._run.run_id, self._kept, remote)
        self._refresh()
        self._show_evaluation()

    def _not_taken(self, problem: Problem) -> None:
        """Report a refused change; the page is reloaded with the next update of the run list."""
        self._missed = True
        self.session.problem_raised.emit(problem)

    @Slot()
    def _runs_changed(self) -> None:
        if self._missed:
            self._missed, self._seen = False, ()
        self._refresh()

    def _show_rows(self) -> None:
        if (summary := self._run.summary) is not None:
            self._list.set_branched(self._actions.holds("branched"))
            self._list.show_rows(summary, self._run.state, self._kept, self._providers())

    def _providers(self) -> list[str]:
        return list(self.session.settings.current.compared_models)

    def _show_empty(self) -> None:
        summary, spec = self._run.summary, self._run.state.spec
        every = spec.config.train.checkpoint_every if spec else None
        first = (
            f"The first checkpoint is saved after step {every}."
            if every
            else "Press Train to create the first checkpoint."
        )
        words = f"{first} Compare, chat with and export checkpoints here."
        self._empty.set_words("No checkpoint yet", words)
        if (
            summary is not None
            and summary.state in ACTIVE_STATES
            and summary.kind in TRAINING_KINDS
        ):
            self._empty.set_actions("Save now", icon="layers", second="Open the run")
        else:
            self._empty.set_actions("Open the run", icon="activity")

    def _begin(self) -> None:
        living = self._run.summary is not None and self._run.summary.state in ACTIVE_STATES
        self._actions.trigger("run.keep" if living else "go.run")
        if living:
            self.session.notice.emit("A checkpoint will be saved after this step.")

    # Comparison

    def _show_comparison(self) -> None:
        result = self._evaluation.result
        if result is not None and result.standings:
            self._compare.show_evaluated(result, self._names())
        else:
            self._compare.show_tested(self._model.chosen())

    def _show_evaluate(self) -> None:
        if (living := self._evaluation.active) is not None:
            share = living.trajectories / max(1, living.attempts)
            words = f"{living.trajectories} of {living.attempts} rollouts"
            self._evaluate.set_busy(words, share)
            return
        self._evaluate.set_busy(None)
        chosen = self._model.chosen()
        attempts, seconds = self._work(len(chosen))
        price = formatting.plural(attempts, "rollout")
        price += f" · ≈ {formatting.duration(seconds)}" if seconds else ""
        self._evaluate.set_words(f"Evaluate {len(chosen)}", price if chosen else "")
        self._evaluate.setEnabled(len(chosen) > 0 and self.session.connected)

    def _work(self, contenders: int) -> tuple[int, float | None]:
        """Estimate rollouts and seconds of an evaluation (None: no validation was timed)."""
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
        if self._evaluation.active is not None:
            self._evaluation.stop()
        else:
            self.tasks.run("place", self._evaluate_chosen())

    async def _evaluate_chosen(self) -> None:
        """Evaluate the selection on the project's server if all its files are there."""
        chosen = self._model.chosen()
        names = [one.name for one in chosen]
        host = self.session.hosts.chosen(self.session.project.path)
        if any(one.is_checkpoint for one in chosen) and (run := self._run.summary) is not None:
            if host and host != run.host:
                where = run.host or "this machine"
                self.session.notice.emit(
                    f"{run.name} is stored on {where}, so the evaluation runs there."
                )
                host = run.host
            missing = [one for one in chosen if one.elsewhere]
            if missing and not host:
                on = f"Evaluate on {run.host}"
                answer = await self._fetches.agree(missing, "evaluation", on)
                if not answer:
                    return
                host = run.host if answer == "there" else ""
                if answer == "fetch":
                    await self._fetches.bring(missing)
        self._evaluation.start(names, host)

    def _before_talk(self, go_on: Callable[[], None]) -> None:
        """Fetch the checkpoint files of the selected models, then call `go_on`."""
        missing = [one for one in self._model.chosen() if one.elsewhere]
        if not missing:
            go_on()
            return

        async def bring() -> None:
            if await self._fetches.agree(missing, "a side-by-side chat") == "fetch":
                await self._fetches.bring(missing)
                go_on()

        self.tasks.run("talk", bring())

    def _fetch(self, row: Contender | None) -> None:
        if row is None:
            self._fetches.cancel()
        elif row.elsewhere:
            self._fetches.start(row)

    def _show_coming(self) -> None:
        queue = self._fetches
        self._list.show_coming(queue.words if queue.coming else "", queue.share)

    def _open_attempts(self) -> None:
        if self._evaluation.newest is not None:
            self.session.open_run(self._evaluation.newest, "trajectories")

    # Selection

    def _chosen_changed(self) -> None:
        self._arena.show_models([one.name for one in self._model.chosen()], self._names())
        self._show_evaluation()

    def _show_examples(self) -> None:
        """Show the validation examples of the checked checkpoint."""
        target = self._list.target()
        self.examples.show_checkpoint(target.step if target else None)

    def _names(self) -> dict[str, str]:
        """Return model name of the engine (by run id or run name) → title on this page."""
        name = self._run.summary.name if self._run.summary else ""
        words = {row.name: row.words for row in self._model.rows}
        return words | {
            f"{name}@{row.step}": row.words for row in self._model.rows if row.is_checkpoint
        }

    def _open_export(self, row: Contender) -> None:
        summary = self._run.summary
        if summary is not None and row.step is not None:
            sizes = export_sizes(self._run.state, row.kept)
            self._export.show_checkpoint(summary.id, summary.name, row.step, sizes)
            self._export.open()

    def _pin(self, step: int, pinned: bool) -> None:
        run_id = self._run.run_id
        self._change(self.session.client.pin_checkpoint(run_id, step, PinCheckpoint(pinned=pinned)))

    def _delete(self, step: int) -> None:
        run_id = self._run.run_id

        async def sure() -> None:
            choices = [Choice("", "Cancel"), Choice("delete", "Delete", "danger")]
            words = "Trajectories and other checkpoints are kept. This cannot be undone."
            answer, _ = await ask(self.window(), f"Delete step {step}?", words, choices)
            if answer == "delete":
                await self.session.client.delete_checkpoint(run_id, step)

        self._change(sure())

    def _change(self, work) -> None:  # type: ignore[no-untyped-def]
        self.tasks.run("change", work, lambda _: self._look_again())

    def _look_again(self) -> None:
        self._seen = ()
        self._refresh()

    # Provider models

    def _add_model(self) -> None:
        self.tasks.run("add", self._ask_model())

    async def _ask_model(self) -> None:
        field = TextField("Model", "openai/gpt-5.4-mini", mono=True)
        choices = [Choice("", "Cancel"), Choice("add", "Add", "primary")]
        words = (
            "Model name in LiteLLM syntax. The API key is read from Settings or the "
            "environment; evaluate.budget_usd limits the cost of an evaluation."
        )
        answer, name = await ask(self.window(), "Add a model to compare", words, choices, field)
        name = str(name or "").strip()
        if answer != "add" or not name:
            return
        if "/" not in name:
            hint = "Write PROVIDER/MODEL, for example openai/gpt-5.4-mini or ollama_chat/llama3.2."
            raise Refused.of(
                "studio.model_name", f"The model name {name} has no provider prefix.", hint
            )
        known = [one for one in self._providers() if one != name]
        self.session.settings.update(compared_models=[*known, name])
        self._show_rows()
        self._list.toggle_name(name)

    def _forget(self, name: str) -> None:
        kept = [one for one in self._providers() if one != name]
        self.session.settings.update(compared_models=kept)
        self._show_rows()

    # Building

    def _build(self) -> None:
        self._top.addWidget(self._list)
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
        whole.addWidget(self._lower)
        whole.setStretchFactor(0, 2)
        whole.setStretchFactor(1, 3)
        whole.setSizes(FIRST_SIZES)
        self.remember_splitter("checkpoints/whole", whole)
        part = QWidget()
        vbox(whole, parent=part, margins=16)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(part)
        hbox(self._stack, parent=self)

    def _wire(self) -> None:
        self._run.changed.connect(self._refresh)
        self._run.selected.connect(self._selected)
        self.session.runs_changed.connect(self._runs_changed)
        self._list.chosen_changed.connect(self._chosen_changed)
        self._list.target_changed.connect(self._show_examples)
        self._list.evaluate_wanted.connect(self._press_evaluate)
        self._list.export_wanted.connect(self._open_export)
        self._list.branch_wanted.connect(self.branch_wanted)
        self._list.pin_wanted.connect(self._pin)
        self._list.delete_wanted.connect(self._delete)
        self._list.add_wanted.connect(self._add_model)
        self._list.forget_wanted.connect(self._forget)
        self._list.comparison_wanted.connect(lambda: self._actions.trigger("run.compare_parent"))
        self._list.refused.connect(self.session.notice)
        self._list.fetch_wanted.connect(self._fetch)
        self._fetches.changed.connect(self._show_coming)
        self._fetches.fetched.connect(self._look_again)
        self._arena.before = self._before_talk
        self._arena.edit_wanted.connect(self.prompt_sheet.show_prompt)
        self.prompt_sheet.applied.connect(self._arena.show_prompt)
        self._evaluation.changed.connect(self._show_evaluation)
        self._compare.attempts_wanted.connect(self._open_attempts)
        self._empty.action_requested.connect(self._begin)
        self._empty.second_requested.connect(lambda: self._actions.trigger("go.run"))
        self._arena.problem_raised.connect(self.session.problem_raised)

    @Slot()
    def _selected(self) -> None:
        self.tasks.cancel("kept")  # request of the previous run
        self._kept = []
        self._seen = ()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW_PX
        wanted = Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal
        if self._top.orientation() != wanted:
            self._top.setOrientation(wanted)
