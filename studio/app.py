"""Composition root: application, loop, settings, theme, link, stores, models, window, wiring.

`main` returns when the window is closed and all tasks of the studio have ended; the engine and its
runs continue."""

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import qasync
from PySide6.QtWidgets import QApplication, QFileDialog

from engine.launcher import local
from engine.protocol.problems import Problem
from engine.protocol.records.runs import TrainingKind
from engine.protocol.requests.runs import StartRun
from studio.actions.actions import Actions
from studio.link.engine import EngineLink
from studio.link.engine_state import LinkState
from studio.main_window import PROJECTLESS, MainWindow
from studio.models.event_feed import Feed
from studio.pages.home.page import HomePage
from studio.pages.models.page import ModelsPage
from studio.pages.page import Page
from studio.pages.runs.page import RunsPage
from studio.pages.settings.page import SettingsPage
from studio.pages.setup.page import SetupPage
from studio.pages.trust_bar import TrustController
from studio.runtime.garbage_collector import GuiCollector
from studio.runtime.single_instance import SingleInstance
from studio.services.desktop_notifications import DesktopNotifications
from studio.services.notifications import Choice, Notifier, ask
from studio.services.project_files import ProjectFilesService
from studio.services.run_news import News
from studio.services.session import Session
from studio.services.settings import Settings, SettingsStore, settings_path
from studio.shell import palette
from studio.shell.help import HELP_OF_PAGE, HelpDialog
from studio.shell.import_trajectories import Importer
from studio.shell.label_files import LabelFiles
from studio.shell.new_project import NewProjectController
from studio.shell.page_registry import PageRegistry
from studio.shell.server_actions import ServerController
from studio.shell.window_state import Frame
from studio.store.runs.runs import RunStore
from studio.theme.theme import Theme
from studio.widgets.forms.form_fields import SpinField, TextField

log = logging.getLogger(__name__)


class Studio:
    """All objects with the lifetime of the window: settings, session, pages, controllers."""

    def __init__(self, app: QApplication, workspace: str = "", settings_file: Path | None = None):
        self.settings = SettingsStore(settings_file or settings_path())
        self.theme = Theme.install(app, self.settings.current.theme)
        self._apply(self.settings.current)
        runs = RunStore()
        self.feed = Feed(runs)
        place = workspace or self.settings.current.workspace
        self.workspace = Path(place) if place else local.default_workspace()
        python = self.settings.current.engine_python or None
        self.link = EngineLink(self.workspace, python, self.feed)
        self.session = Session(self.link, self.feed, runs, self.settings)
        self.window = MainWindow(self.settings)
        self.actions = Actions(self.window)
        self.notifier = Notifier(self.window, self.window.toast, self.window.show_problem)
        self.pages = PageRegistry(self.session, self.actions, self.workspace, self._add_page)
        self.window.set_pages(self.pages)
        self.frame = Frame(self.window, self.session, self.actions)
        self.trust = TrustController(self.window, self.window.trust_bar, self.session)
        self.importer = Importer(self.window, self.session)
        self.label_files = LabelFiles(self.window, self.session)
        self.describing = NewProjectController(
            self.window, self.session, self.actions, self.workspace
        )
        self.files = ProjectFilesService(self.session)
        self.desktop = DesktopNotifications(self.window)
        self.servers = ServerController(self.window, self.session, self.actions, self.frame)
        self._contact = ""
        self._collector = GuiCollector(self.window)
        self._bind()

    def start(self, project: str = "") -> None:
        """Show the window, then find or start the engine and open a project (path; empty: the last
        one)."""
        self.window.show_page("home")
        self.window.show()
        self._collector.start()
        self.session.start(*self._first_place(project))

    def _first_place(self, project: str) -> tuple[str, str]:
        """Return (project, page) to open: the requested project, else the last one and its page."""
        last, recent = self.settings.current.last_page, self.settings.current.recent_projects
        if project:
            return project, "setup"
        known = [path for path in recent[:1] if Path(path).is_dir()]
        return (known[0], last) if known and last not in PROJECTLESS else ("", "")

    async def close(self) -> None:
        """Close pages, controllers and session in this order. Training continues in the engine."""
        await self.pages.close()
        await self.describing.close()
        await self.files.close()
        await self.desktop.close()
        await self.session.close()
        self._collector.stop()

    def _bind(self) -> None:
        session, window, actions = self.session, self.window, self.actions
        session.problem_raised.connect(self.notifier.problem)
        session.notice.connect(self.notifier.say)
        session.news.announced.connect(self._announce)
        self.desktop.opened.connect(self._open_news)
        session.place_wanted.connect(window.show_page)
        session.engine_changed.connect(self._engine_changed)
        self.settings.changed.connect(self._apply)
        self.settings.write_failed.connect(self._settings_unwritten)
        window.remedy_chosen.connect(actions.trigger)
        actions.bind(**{f"go_{place}": self._go(place) for place in self.pages})
        actions.bind(
            app_commands=lambda: palette.CommandPalette(window, actions).show(),
            app_help=self._open_help,
            app_shortcuts=lambda: palette.ShortcutSheet(window).open(),
            app_sidebar=window.toggle_sidebar,
            app_theme=self._switch_theme,
            app_quit=window.close,
            project_open=self._choose_folder,
            project_save=lambda: self.pages[window.page].save() if window.page else None,
            project_import=lambda: self.importer.start(),
            labels_queue=self.pages.open_review_queue,
            labels_export=self.label_files.save,
            labels_import=self.label_files.load,
            project_new=lambda: session.tasks.run("new", self._new_project()),
            run_train=self._train,
            sft_train=lambda: self._train("sft"),
            sft_open=self._open_demonstrations,
            sft_teacher=lambda: self._open_demonstrations(teacher=True),
            run_pause=self._pause,
            run_stop_after=lambda: session.command("stop_after_step"),
            run_stop_now=lambda: session.command("stop_now"),
            run_adapter=self._choose_adapter,
            run_keep=lambda: session.command("keep"),
            run_resume=self._resume,
            run_extend=lambda: session.tasks.run("extend", self._extend()),
            run_choose=self.frame.choose_run,
            run_compare_parent=self._compare_with_parent,
            run_track=session.track,
            models_search=self._search_models,
            models_choose=self._go("models"),
            engine_start=lambda: session.open_engine(),
            engine_restart=session.restart_engine,
            engines_open=self._open_engines,
            engine_doctor=self._check_machine,
        )

    def _announce(self, news: News) -> None:
        """Show news of a run in the window, and on the desktop if the window is in the
        background."""
        if news.kind == "alert":
            self.notifier.warn(news.line())
        else:
            self.notifier.say(news.line())
        if self.settings.current.desktop_notifications and not self.window.isActiveWindow():
            self.desktop.show(news.title, news.words, news.run_id)

    def _open_news(self, run_id: str) -> None:
        self.window.raise_()
        self.window.activateWindow()
        if run := self.session.runs.summary(run_id):
            self.session.open_run(run)

    def _compare_with_parent(self) -> None:
        run = self.session.run.summary
        if run is not None and run.parent is not None:
            self.window.show_page("runs")
            self.pages.typed("runs", RunsPage).compare([run.parent.run_id, run.id])

    def _add_page(self, key: str, page: Page) -> None:
        """Add a page that was just built to the window, and connect its signals."""
        self.window.add_page(key, page)
        if isinstance(page, SettingsPage):
            self.servers.serve(page)
        elif isinstance(page, HomePage):
            self.describing.serve(page)
            page.import_wanted.connect(self.importer.start)

    def _open_help(self) -> None:
        """Open the help window at the documentation of the current page."""
        outside = self.session.project.outside
        path = "how-to/art-scripts.md" if outside else HELP_OF_PAGE[self.window.page]
        HelpDialog(self.window, path).open()

    def _open_demonstrations(self, teacher: bool = False) -> None:
        self.window.show_page("setup")
        self.pages.typed("setup", SetupPage).show_demonstrations(teacher)

    def _open_engines(self) -> None:
        self.window.show_page("settings")
        self.pages.typed("settings", SettingsPage).show_section("engines")

    def _search_models(self) -> None:
        self.window.show_page("models")
        self.pages.typed("models", ModelsPage).focus_search()

    def _check_machine(self) -> None:
        self.window.show_page("settings")
        self.pages.typed("settings", SettingsPage).check()

    def _go(self, place: str) -> Callable[[], None]:
        return lambda: self.window.show_page(place)

    def _engine_changed(self, state: LinkState) -> None:
        """Show the problem while the engine is unreachable, and remove it after a reconnection."""
        if state.contact == "connected" and self._contact != "connected":
            self.notifier.resolved()
        elif state.contact == "gone" and state.problem and self._contact != "gone":
            self.notifier.problem(state.problem)
        self._contact = state.contact

    def _apply(self, settings: Settings) -> None:
        self.theme.reduced_motion = settings.reduced_motion
        if settings.theme != self.theme.mode:
            self.theme.set_mode(settings.theme)

    def _settings_unwritten(self, why: str) -> None:
        hint = "Changed settings are lost when the window is closed."
        words = f"The settings could not be saved: {why}."
        self.notifier.problem(Problem(code="studio.services.settings", message=words, hint=hint))

    def _switch_theme(self) -> None:
        self.settings.update(theme="light" if self.theme.scheme == "dark" else "dark")

    def _choose_folder(self) -> None:
        dialog = QFileDialog(self.window, "Open a project folder", str(self.workspace))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self.session.open_project)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _choose_adapter(self) -> None:
        """Ask for a folder with a LoRA adapter in PEFT format (ART's too), and train from it."""
        title = "Choose an adapter: a folder with adapter_config.json"
        dialog = QFileDialog(self.window, title, str(self.workspace))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self._train_from)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _train_from(self, folder: str) -> None:
        project = self.session.project.path
        self.session.start_run(StartRun(project=project, origin=folder, queue=True))

    async def _new_project(self) -> None:
        """Ask for a folder name and create a project from the template in the workspace."""
        field = TextField("Folder", "my-agent")
        choices = [Choice("", "Cancel"), Choice("make", "Create project", "primary")]
        words = (
            f"Creates a folder in {self.workspace} with a template agent and template scenarios."
        )
        answer, name = await ask(self.window, "New project", words, choices, field)
        if answer == "make":
            folder = self.workspace / (str(name or "").strip() or "my-agent")
            self.session.create_project(str(folder), None)

    def _train(self, kind: TrainingKind = "train") -> None:
        """Commit the text field being edited, then start a run."""
        if focused := QApplication.focusWidget():
            focused.clearFocus()
        self.session.train(kind)

    def _pause(self) -> None:
        """Pause the run; continue one that is paused, or about to."""
        run = self.session.run.summary
        paused = run is not None and run.state in ("paused", "pausing")
        self.session.command("continue" if paused else "pause")

    def _resume(self) -> None:
        """Continue a paused run or resume one that has ended."""
        run = self.session.run.summary
        self.session.command("continue" if run and run.state == "paused" else "resume")

    async def _extend(self) -> None:
        run = self.session.run.summary
        if run is None:
            return
        field = SpinField("Total steps", run.steps + 1, 1_000_000, step=10)
        field.set_value(run.steps + max(10, run.steps // 4))
        choices = [Choice("", "Cancel"), Choice("extend", "Extend", "primary")]
        words = f"The run ends after step {run.steps}. Enter the new total number of steps."
        answer, steps = await ask(self.window, f"Extend {run.name}", words, choices, field)
        if answer == "extend":  # resumes a run that has ended
            self.session.command("extend", steps=steps, run_id=run.id)


def main(project: str = "", workspace: str = "") -> int:
    """Run the studio until its window is closed. `project`: path to open (empty: the last one),
    `workspace`: folder of projects (empty: from the settings). If a studio already runs in the
    workspace, only raise its window. Returns the exit status."""
    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    app.setApplicationName("Atelier")
    app.setQuitOnLastWindowClosed(False)
    single = SingleInstance(workspace)
    if single.raise_first(project):
        return 0
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with loop:
        loop.run_until_complete(_live(app, single, project, workspace))
    return 0


async def _live(app: QApplication, single: SingleInstance, project: str, workspace: str) -> None:
    studio = Studio(app, workspace)
    closed = asyncio.Event()
    studio.window.closing.connect(closed.set)
    single.project_requested.connect(lambda path: _raise(studio, path))
    single.listen()
    studio.start(str(Path(project).resolve()) if project else "")
    studio.pages.build_ahead(studio.window)
    try:
        await closed.wait()
    finally:
        single.close()
        await studio.close()


def _raise(studio: Studio, project: str) -> None:
    studio.window.show()
    studio.window.raise_()
    studio.window.activateWindow()
    if project:
        studio.session.open_project(project)
