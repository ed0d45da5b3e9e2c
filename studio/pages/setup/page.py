"""Setup page: form, project.toml, scenarios and demonstrations; preflight and Train on the
right."""

from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QStackedWidget, QWidget

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.forecast import Forecast
from engine.protocol.records.machine.backends import BackendFacts
from engine.protocol.records.machine.hardware import Check, MemoryFix
from engine.protocol.records.runs import RunSummary, Split
from studio.actions.actions import Actions
from studio.link.engine_state import LinkState
from studio.pages.page import Page, scrolled
from studio.pages.setup.form.edits import FILE, Edits
from studio.pages.setup.form.fields import value_at
from studio.pages.setup.form.method import KEY
from studio.pages.setup.form.sections import AGENT, ChoicesForm
from studio.pages.setup.preflight.checks import disk_checks, project_checks
from studio.pages.setup.preflight.live_checks import ProjectChecks
from studio.pages.setup.preflight.panel import WIDTH, Preflight
from studio.pages.setup.tabs.demonstrations import DemonstrationsTab
from studio.pages.setup.tabs.scenarios import ScenariosTab
from studio.pages.setup.tabs.toml import TomlTab
from studio.pages.setup.teacher_sheet import TeacherSheet
from studio.pages.tools.agent_tools import AgentTools
from studio.services.session import Session
from studio.store.projects.backends import checks as backend_checks
from studio.store.runs.status_words import no_train_words
from studio.text import formatting
from studio.theme.theme import theme
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import hbox, vbox
from studio.widgets.painting.paint import painting
from studio.widgets.text.text import Text

TABS = ("Form", "project.toml", "Scenarios", "Demonstrations")
TITLES = ("Configure training", "Edit project.toml", "Scenarios", "Supervised fine-tuning (SFT)")
SCENARIOS, DEMONSTRATIONS = 2, 3
WIDEST_FORM = 980
NARROW_PX = 1064
"""Width of the page below which the preflight folds to a strip above the form."""
PRICED_AFTER_MS = 120
"""Delay between the last edit and a new estimate, ms."""


class SetupPage(Page):
    """Setup page; edits are validated before writing, and refused ones stay visible with a
    reason."""

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions = actions
        self._forecast: Forecast | None = None
        self._checked = ""
        """Folder of the project whose model checks are shown."""
        self._contact = self._cluster = ""
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(PRICED_AFTER_MS)
        self._edits = Edits(session, self.tasks, self._soon.start)
        self._title = Text(TITLES[0], "title", elide=True)
        self._tabs = Segmented(TABS, "Setup view")
        self._form, self._toml = ChoicesForm(), TomlTab()
        self._tools = AgentTools(session, self.tasks, self, self._requirements)
        self._form.add_tools(self._tools)
        self._scenarios = ScenariosTab(session, self.tasks)
        self._teacher = TeacherSheet(self)
        self._demonstrations = DemonstrationsTab(session, self.tasks, self._teacher)
        self._preflight, self._stack = Preflight(), QStackedWidget()
        self._tests = ProjectChecks(session, self.tasks, self)
        self._preflight.add_tests(self._tests)
        self._build()
        self._wire()

    def enter(self) -> None:
        if self.session.project.view is not None:
            self._show_project()
            self._ask_forecast()
            self.tasks.run("models", self._models(), self._form.set_models)
            self._ask_backends()
            self._tools.look()

    def save(self) -> None:
        """Save the visible tab (Ctrl S)."""
        tabs = (self._form.finish, self._toml.save, self._scenarios.save)
        (*tabs, self._demonstrations.finish)[self._tabs.index()]()

    def show_scenarios(self, split: Split) -> None:
        """Switch to the Scenarios tab and a split."""
        self._choose(SCENARIOS)
        self._scenarios.show_split(split)

    def show_demonstrations(self, teacher: bool = False) -> None:
        """Switch to the Demonstrations tab; `teacher` opens the teacher sheet there."""
        self._choose(DEMONSTRATIONS)
        if teacher:
            self._demonstrations.open_teacher()

    def _build(self) -> None:
        self._head = QWidget()
        line = hbox((self._title, 1), self._tabs, parent=self._head, spacing=16)
        line.setContentsMargins(24, 14, 24, 10)
        self._form.setMaximumWidth(WIDEST_FORM)
        for part in (scrolled(self._form), self._toml, self._scenarios, self._demonstrations):
            self._stack.addWidget(part)
        self._left = vbox(self._preflight.strip, 8, (self._stack, 1), spacing=0)
        self._left.insertWidget(0, self._head, 0, Qt.AlignmentFlag.AlignLeft)
        self._line = hbox((self._left, 1), self._preflight, parent=self, spacing=1)
        self._preflight.strip.hide()
        self._narrow, self._unfolded = False, False
        self._preflight.strip.unfolded.connect(self._unfold)

    def _wire(self) -> None:
        session = self.session
        session.project_changed.connect(self._project_changed)
        session.engine_changed.connect(self._engine_changed)
        session.runs_changed.connect(self._show_readiness)
        session.run.changed.connect(self._show_baseline)
        for places in (session.clusters, session.hosts):
            places.changed.connect(self._show_place)
        self._tabs.chosen.connect(self._choose)
        for part in (self._form, self._demonstrations):
            part.edited.connect(partial(self._edits.put, part))
        self._form.values_chosen.connect(self._put_all)
        self._form.link_activated.connect(self._actions.trigger)
        self._form.preset_chosen.connect(self._choose_preset)
        self._form.scenarios_wanted.connect(self.show_scenarios)
        self._form.models_wanted.connect(lambda: self._actions.trigger("models.choose"))
        self._form.agent_file_wanted.connect(self._choose_agent)
        self._toml.save_wanted.connect(partial(self._edits.save, self._toml))
        self._scenarios.changed.connect(session.show_project)
        self._scenarios.measured.connect(self._show_baseline)
        self._demonstrations.train_wanted.connect(lambda: self._actions.trigger("sft.train"))
        self._tools.changed.connect(self._show_readiness)
        self._preflight.measure_wanted.connect(lambda: session.train("baseline", show=False))
        self._preflight.train_wanted.connect(lambda: self._actions.trigger("run.train"))
        self._preflight.again_wanted.connect(self._ask_forecast)
        self._preflight.cards.fix_chosen.connect(self._apply_fix)
        self._preflight.cards.undo_wanted.connect(self._put_all)
        self._soon.timeout.connect(self._ask_forecast)

    def _choose(self, tab: int) -> None:
        self._tabs.set_index(tab)
        self._stack.setCurrentIndex(tab)
        self._title.set_words(TITLES[tab])
        self._preflight.strip.set_open(False)
        self._place_preflight()
        if tab == SCENARIOS:
            self._scenarios.load()
        elif tab == DEMONSTRATIONS:
            self._demonstrations.load()

    def _unfold(self, opened: bool) -> None:
        """Show the preflight panel instead of the tab, in a narrow window."""
        self._unfolded = opened
        self._place_preflight()

    def _place_preflight(self) -> None:
        """Show the preflight, which covers RL only, beside the tab or as a strip above it."""
        covered = self._tabs.index() != DEMONSTRATIONS
        self._preflight.setVisible(covered and (self._unfolded or not self._narrow))
        self._preflight.strip.setVisible(covered and self._narrow)
        self._stack.setVisible(not (self._narrow and self._unfolded))
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW_PX
        # the tabs stay where they are on the tab without preflight
        self._head.setFixedWidth(self.width() - (0 if narrow else WIDTH + 1))
        if narrow == self._narrow:
            return
        self._narrow = narrow
        self._preflight.set_narrow(narrow)
        if narrow:
            self._left.addWidget(self._preflight, 1)
        else:
            self._preflight.strip.set_open(False)
            self._line.addWidget(self._preflight)
        self._place_preflight()

    # Project

    @Slot()
    def _project_changed(self) -> None:
        if self.isVisible():
            self._show_project()
            self._soon.start()
            self._tools.look()

    def _show_project(self) -> None:
        project = self.session.project
        if project.view is None:
            return
        if project.path != self._edits.path:
            self._turn(project.path)
        self._show_clusters()
        self._form.show_project(project.view, project.command(self.session.cluster))
        self._form.show_problems(project.view.problems)
        self._teacher.project = project.path
        self._tests.show_project(project.view)
        if project.view.config is not None:
            self._demonstrations.show_config(project.view.config)
            if self._tabs.index() == DEMONSTRATIONS:
                self._demonstrations.load()
        problems, mark = list(project.view.problems), project.view.files.get(FILE, "")
        self._toml.show_text(project.path, project.view.toml, problems, mark)
        self._scenarios.show_files(project.view.files)
        if project.view.config is None:
            self._choose(1)
        self._show_readiness()
        self._show_baseline()

    def _requirements(self) -> tuple[str, str]:
        """Return project folder and requirements file of the agent."""
        project = self.session.project
        config = project.view.config if project.view else None
        return project.path, (config.agent.requirements or "") if config else ""

    def _turn(self, path: str) -> None:
        """Switch to another project; pending edits belong to the previous one."""
        for part in (self._form, self._demonstrations):
            part.finish()
        self._demonstrations.forget()
        self._edits.turn(path)
        self._forecast = None
        self.tasks.cancel("forecast")
        self._preflight.cards.offer_undo("", {})
        if self._teacher.is_open():
            self._teacher.close_sheet()
        if self._tabs.index() == SCENARIOS:
            self._scenarios.load()

    def _choose_preset(self, name: str) -> None:
        """Apply an algorithm preset, removing all deviations from it."""
        self._edits.write(self._form, KEY, {KEY.rpartition(".")[0]: None, KEY: name})

    def _put_all(self, values: dict[str, Any]) -> None:
        """Write several settings (key → value); a refusal is shown at the first."""
        self._edits.write(self._form, next(iter(values)), values)

    def _apply_fix(self, fix: MemoryFix) -> None:
        view = self.session.project.view
        if view is None or view.config is None:
            return
        usual = ProjectConfig()
        now = {key: value_at(view.config, key) for key in fix.values}
        before = {k: None if v == value_at(usual, k) else v for k, v in now.items()}
        self._put_all(fix.values)
        self._preflight.cards.offer_undo(fix.words, before)

    def _choose_agent(self) -> None:
        root = self.session.project.path
        dialog = QFileDialog(self, "Choose the agent", root, "Python (*.py)")
        dialog.fileSelected.connect(lambda path: self._put_all({AGENT: _within(path, root)}))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    async def _models(self) -> Any:
        return await self.session.client.models()

    @Slot(object)
    def _engine_changed(self, link: LinkState) -> None:
        """Reload the capabilities after a change of engine."""
        before, self._contact = self._contact, link.contact
        if self.isVisible() and link.contact == "connected" != before:
            self._ask_backends()

    def _ask_backends(self) -> None:
        self.tasks.run("backends", self._backends(), self._show_backends, self._unknown)

    async def _backends(self) -> BackendFacts:
        return await self.session.client.backends()

    def _show_backends(self, facts: BackendFacts) -> None:
        self._form.show_facts(facts)
        self._show_readiness()

    def _unknown(self, problem: Problem) -> None:
        """Handle a failed request, as of an older engine without this route: no capabilities are
        shown."""
        self._form.show_facts(None)

    @Slot()
    def _show_place(self) -> None:
        """Show on which machine or cluster the next run trains."""
        if self.isVisible() and self.session.project.view is not None:
            self._show_clusters()
            self._form.show_command(self.session.project.command(self.session.cluster))
            self._show_memory()
            self._show_readiness()
            if self.session.cluster != self._cluster:
                self._soon.start()
            self._cluster = self.session.cluster

    def _show_clusters(self) -> None:
        view = self.session.project.view
        named = view.config.backend.cluster if view and view.config else ""
        name = self.session.cluster
        self._form.show_clusters(self.session.clusters.all, None if name == named else name)

    # Preflight

    @Slot()
    def _ask_forecast(self) -> None:
        path = self.session.project.path
        pending = self._edits.under_way()

        async def ask() -> Forecast:
            return await self.session.client.forecast(path, pending)

        def failed(problem: Problem) -> None:
            if pending:  # the response to the edit reports its problem
                return
            self._forecast = None
            self._show_memory(problem)

        self.tasks.run("forecast", ask(), self._show_forecast, failed)
        self._ask_model_checks(path, pending)

    def _ask_model_checks(self, path: str, edits: dict[str, Any]) -> None:
        """Request the checks of the model; the first request for a model takes seconds, in which
        those of the same project stay."""
        if path != self._checked:
            self._show_model_checks([])
        self._checked = path

        session, view = self.session, self.session.project.view
        chosen = session.clusters.override(session.cluster, view.config if view else None)
        pending = {**edits, **chosen}

        async def ask() -> list[Check]:
            return await self.session.client.model_checks(path, pending)

        def failed(problem: Problem) -> None:  # an invalid project or an older engine
            self._show_model_checks([])

        self.tasks.run("model checks", ask(), self._show_model_checks, failed)

    def _show_model_checks(self, checks: list[Check]) -> None:
        self._form.show_model_checks(checks)
        self._preflight.show_model_checks(checks)

    def _show_forecast(self, forecast: Forecast) -> None:
        self._forecast = forecast
        self._show_memory()
        self._show_readiness()

    def _show_memory(self, problem: Problem | None = None) -> None:
        """Show the forecast of memory and time, or what a step samples on the chosen cluster."""
        view = self.session.project.view
        if (name := self.session.cluster) and view is not None and view.config is not None:
            self._preflight.show_cluster(name, view.config, self._forecast)
        else:
            self._preflight.show_forecast(self._forecast, problem)

    def _baselines(self) -> list[RunSummary]:
        runs = self.session.runs.of(self.session.project.path)
        return sorted((r for r in runs if r.kind == "baseline"), key=lambda r: -r.started_at)

    @Slot()
    def _show_baseline(self) -> None:
        """Show the newest baseline, or the initial validation of the newest run."""
        if not self.isVisible():
            return
        measured = self._baselines()
        measuring = bool(measured) and measured[0].state in ("starting", "running")
        ended = (run for run in measured if run.state == "finished")
        self._scenarios.show_baseline(next(ended, None))
        runs = self.session.runs.of(self.session.project.path)
        for run in [*measured, *(run for run in runs if run.kind == "train")]:
            state = self.session.runs.state(run.id)
            first = state.validations[0] if state.validations else None
            rate = (first.reward if first else None) or run.baseline or run.validation
            if rate is not None:
                known = self._scenarios.rates if run.kind == "baseline" else []
                scenarios = list(first.scenarios.values()) if first else known
                self._preflight.show_baseline(rate, scenarios, measuring)
                return
        self._preflight.show_baseline(None, [], measuring)

    @Slot()
    def _show_readiness(self) -> None:
        if not self.isVisible():
            return
        self._show_baseline()
        project, view = self.session.project, self.session.project.view
        if view is None:
            return
        lacking = self._tools.lacking
        checks = project_checks(project.problems, view.config is not None, lacking, project.outside)
        self._preflight.allow_measuring(not project.outside)
        self._preflight.show_checks(
            checks + backend_checks(self._form.notes()) + disk_checks(self._forecast)
        )
        living = self.session.runs.active()
        ready = project.trainable and self.session.connected and not lacking
        why = (
            f"One run trains at a time; the new run starts after {living[0].name}."
            if living
            else ""
        )
        if project.outside:
            why = no_train_words(None)
        elif not view.trusted:
            why = "Trust this project first."
        elif not project.trainable:
            why = "Fix the highlighted settings first."
        elif lacking:
            why = f"{lacking}."
        self._form.set_locked("Changes apply to the next run." if living else "")
        self._preflight.set_train("Queue" if living else "Train", self._price(), ready, why)

    def _price(self) -> str:
        view = self.session.project.view
        if view is None or view.config is None or self.session.project.outside:
            return ""
        words = formatting.plural(view.config.train.steps, "step")
        if self._forecast is None or self.session.cluster:
            return words
        seconds = (
            self._forecast.steps * (self._forecast.step_low_s + self._forecast.step_high_s) / 2
        )
        return f"{words} · ≈ {formatting.duration(seconds)}"

    def paintEvent(self, event: QPaintEvent) -> None:
        with painting(self) as painter:
            if not (self._narrow or self._preflight.isHidden()):
                x = self.width() - WIDTH - 1
                painter.fillRect(x, 0, 1, self.height(), theme().color("border"))


def _within(path: str, root: str) -> str:
    """Return the path relative to the project if it lies inside."""
    inside = Path(path).is_relative_to(root)
    return str(Path(path).relative_to(root)) if inside else path
