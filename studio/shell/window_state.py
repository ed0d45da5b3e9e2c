"""Controller that updates sidebar and header from the session: figures, states, Train button."""

import time
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QCursor
from PySide6.QtWidgets import QMenu

from engine.protocol.records.runs import ACTIVE_STATES, TRAINING_KINDS, RunSummary
from studio.actions.actions import Actions
from studio.link.engine_state import LinkState
from studio.main_window import PROJECTLESS, MainWindow
from studio.models.projects import run_title
from studio.services.session import Session
from studio.shell.conditions import conditions
from studio.shell.engine_menu import EngineSwitcher
from studio.store.runs.eta import remaining_seconds
from studio.store.runs.status_words import no_train_words, state_words, steps_of
from studio.text import formatting
from studio.widgets.controls.buttons import Button
from studio.widgets.tables.status_dot import dot_icon
from studio.widgets.window.page_header import PAUSING

PAUSABLE = ("starting", "running", "reviewing", "pausing")
TITLES = {"home": "Home", "models": "Models", "settings": "Settings"}


class Frame(QObject):
    """Window state controller; emits `send_wanted(name)` to move the selected run to a server."""

    send_wanted = Signal(str)

    def __init__(self, window: MainWindow, session: Session, actions: Actions) -> None:
        super().__init__(window)
        self._window, self._session, self._actions = window, session, actions
        self.switcher = EngineSwitcher(window, session, actions)
        session.engine_changed.connect(self._show_engine)
        session.hosts.changed.connect(self._show_hosts)
        session.project_changed.connect(self.refresh)
        session.runs_changed.connect(self.refresh)
        session.run.changed.connect(self._show_run)
        session.tasks.busy_changed.connect(self._show_start)
        window.page_shown.connect(self.refresh)
        self._home_actions = [
            self._header_button("project.open", "Open folder", "quiet", "folder-open", 28),
            self._header_button("project.new", "New project", "primary", "plus", 32),
        ]
        self._wire()
        self.refresh()

    def _header_button(self, action: str, words: str, kind: str, icon: str, height: int) -> Button:
        button = Button(words, kind, icon=icon, height=height)
        button.clicked.connect(lambda: self._actions.trigger(action))
        self._window.header.add_action(button)
        return button

    def _wire(self) -> None:
        header, sidebar, trigger = self._window.header, self._window.sidebar, self._actions.trigger
        header.pause_requested.connect(lambda: trigger("run.pause"))
        header.stop_requested.connect(self._stop_menu)
        header.branch_requested.connect(lambda: trigger("run.branch"))
        header.run_menu_requested.connect(self.choose_run)
        header.project_requested.connect(lambda: trigger("go.home"))
        header.train.train_requested.connect(lambda: trigger("run.train"))
        header.train.resume_requested.connect(lambda: trigger("run.resume"))
        header.train.train_more_requested.connect(lambda: trigger("run.extend"))
        header.train.menu_chosen.connect(self._train_menu)
        sidebar.commands_requested.connect(lambda: trigger("app.commands"))
        card = sidebar.now_training
        card.run_opened.connect(self._open_living)
        card.pause_requested.connect(lambda: self._command_living("pause"))
        card.resume_requested.connect(lambda: self._command_living("continue"))

    @Slot()
    def refresh(self) -> None:
        """Update actions, sidebar and header, except the engine pill."""
        session, page = self._session, self._window.page
        self._actions.set_conditions(conditions(session))
        named = session.project.name if session.project.view else None
        self._window.sidebar.set_project(named)
        run = session.run.summary
        if page in PROJECTLESS or named is None:
            self._window.header.set_place(TITLES.get(page, "Home"))
        else:
            self._window.header.set_place(named, run.name if run else "")
        self._show_run()

    @Slot(object)
    def _show_engine(self, state: LinkState) -> None:
        self._actions.set_conditions(conditions(self._session))

    @Slot()
    def _show_hosts(self) -> None:
        """Update actions and header after a change of a server."""
        session = self._session
        self._actions.set_conditions(conditions(session))
        if self._window.page not in PROJECTLESS:
            self._show_run()

    @Slot(str, bool)
    def _show_start(self, job: str, busy: bool) -> None:
        """Update the Train button when the job that starts a run begins or ends."""
        if job == "train":
            self._show_run()

    @Slot()
    def _show_run(self) -> None:
        session, header = self._session, self._window.header
        run = session.run.summary
        on_project = self._window.page not in PROJECTLESS
        header.show_run_actions(on_project)
        for button in self._home_actions:
            button.setVisible(self._window.page == "home")
        if on_project:
            living = run is not None and run.state in ACTIVE_STATES
            queued = run is not None and run.state == "queued"
            can_branch = self._actions.holds("branchable")
            pausing = run is not None and run.state == "pausing"
            can_pause = run is not None and run.state in PAUSABLE
            header.set_actions(
                pause=can_pause, stop=living or queued, branch=can_branch, pausing=pausing
            )
            words = state_words(session.run.state, run)
            tone = "neutral" if words.tone in ("muted", "faint") else words.tone
            if run is not None and run.host:
                away = living and session.hosts.away(run.host)
                where = f"{run.host} is disconnected" if away else f"on {run.host}"
                known = (
                    f"Step {run.step}" if away else words.text
                )  # the last known phase is outdated
                words = replace(words, text=f"{known} · {where}")
                tone = "warn" if away else tone
            elif living and (cluster := _cluster_of(session)):
                words = replace(words, text=f"{words.text} · on {cluster}")
            elif living and (session.hosts.chosen(session.project.path) or session.cluster):
                words = replace(words, text=f"{words.text} · on this machine")
            header.chip.set_state(words.text, tone, words.icon)
            self._show_train(run)
        self._show_facts(run)
        self._show_now_training()

    def _show_train(self, run: RunSummary | None) -> None:
        train, session = self._window.header.train, self._session
        train.set_choices(self._ways_to_train() if self._actions.holds("lendable") else ())
        if session.tasks.busy("train"):
            tick = session.hosts.bringing(session.starting_on)
            words = session.hosts.start_words(session.starting_on) if session.starting_on else ""
            train.set_state("starting", *(tick or (0, 0)), words)
        elif self._session.project.outside and not (run and run.state in ACTIVE_STATES):
            train.set_state("none", words=no_train_words(run))
        elif run is None or not _resumes_by_train(run):
            train.set_state("ready" if self._actions.holds("trainable") else "none")
        else:
            state = {
                "queued": "queued",
                "starting": "starting",
                "running": "training",
                "reviewing": "training",
                "pausing": "training",
                "stopping": "training",
                "paused": "paused",
                "stopped": "paused",
                "failed": "paused",
                "damaged": "none",
                "finished": "finished",
            }[run.state]
            train.set_state(state, run.step, run.steps)
        train.set_plain(self._window.page == "setup" or run is None or run.state == "failed")

    def _ways_to_train(self) -> list[tuple[str, str]]:
        """Return the entries of the Train menu for a server, with or without lent API keys."""
        name = self._session.hosts.chosen(self._session.project.path)
        return [
            (f"Train on {name}; judge calls are sent from this machine", "train"),
            (
                f"Train on {name}, and lend the judge's API keys to {name} for this run",
                "train_lending",
            ),
            (f"Lent keys stay in the memory of the engine on {name} until the run ends.", ""),
            ("Without lent keys, the run waits for its judge while this machine is off.", ""),
        ]

    def _show_facts(self, run: RunSummary | None) -> None:
        sidebar, state = self._window.sidebar, self._session.run.state
        trained = run is not None and run.kind in TRAINING_KINDS
        count = f"{run.step}/{run.steps}" if run and run.steps else str(run.step if run else 0)
        sidebar.set_fact("run", count if trained else "")
        sidebar.set_fact(
            "trajectories", formatting.count(run.trajectories) if run and run.kind != "sft" else ""
        )
        kept = len(state.checkpoints)
        sidebar.set_fact("checkpoints", str(kept) if kept else "")

    def _show_now_training(self) -> None:
        card = self._window.sidebar.now_training
        living = self._session.runs.active()
        shown = living[0] if living else None
        same = shown is not None and shown.id == self._session.run.run_id
        if shown is None or (self._window.page in ("run", "home") and (same or shown)):
            card.clear()
            return
        left = remaining_seconds(self._session.runs.state(shown.id), time.time())
        words = f"{formatting.duration(left)} left" if left is not None else ""
        values = shown.progress_curve()
        step = f"Step {steps_of(shown.step, shown.steps)}"
        if shown.kind == "evaluation":
            step = f"{shown.trajectories} of {shown.attempts} rollouts"
        elif shown.kind == "baseline":
            step = f"Measuring the baseline: {formatting.plural(shown.trajectories, 'rollout')}"
        words = PAUSING if shown.state == "pausing" else words
        name = f"{shown.name} · {shown.host}" if shown.host else shown.name
        card.set_run(name, step, words, values, shown.state == "paused")

    def _open_living(self) -> None:
        for run in self._session.runs.active()[:1]:
            self._session.open_run(run)

    def _command_living(self, action: str) -> None:
        for run in self._session.runs.active()[:1]:
            self._session.command(action, run_id=run.id)

    # Menus: popup(), never exec()

    def _menu(self) -> QMenu:
        menu = QMenu(self._window)
        menu.aboutToHide.connect(menu.deleteLater)
        return menu

    def choose_run(self) -> None:
        """Show the menu of the project's runs, newest first."""
        menu = self._menu()
        for run in self._session.runs.of(self._session.project.path):
            action = menu.addAction(run_title(run).replace("&", "&&"))
            action.triggered.connect(lambda _=False, i=run.id: self._session.select_run(i))
        if self._actions.holds("trackable"):
            menu.addSeparator()
            menu.addAction(self._actions["run.track"])
        self._add_moves(menu)
        menu.popup(QCursor.pos())

    def _add_moves(self, menu: QMenu) -> None:
        """Add the entries that move the selected run to or from a server, if available."""
        if self._actions.holds("remote"):
            menu.addSeparator()
            menu.addAction(self._actions["run.bring_home"])
        elif self._actions.holds("sendable"):
            menu.addSeparator()
            self.fill_servers(menu.addMenu("Move to a server"))

    def fill_servers(self, menu: QMenu) -> None:
        """Add an entry per server to a menu; choosing one emits `send_wanted(server name)`."""
        for view in self._session.hosts.all:
            name = view.spec.name
            action = menu.addAction(dot_icon(self._session.hosts.words(name).dot), name)
            action.triggered.connect(lambda _=False, name=name: self.send_wanted.emit(name))

    def choose_server(self) -> None:
        """Show the menu of target servers for the selected run."""
        menu = self._menu()
        self.fill_servers(menu)
        pill = self._window.header.pill
        menu.popup(pill.mapToGlobal(pill.rect().bottomLeft()))

    def _stop_menu(self) -> None:
        menu = self._menu()
        run = self._session.run.summary
        if run is not None and run.state == "queued":
            out = menu.addAction("Remove from queue")
            out.triggered.connect(lambda: self._session.command("stop_now"))
            menu.popup(QCursor.pos())
            return
        after = menu.addAction("After this step")
        after.triggered.connect(lambda: self._session.command("stop_after_step"))
        state = self._session.run.state
        kept = f", keep step {state.checkpoints[-1].step}" if state.checkpoints else ""
        now = menu.addAction(f"Now{kept}")
        now.triggered.connect(lambda: self._session.command("stop_now"))
        menu.popup(QCursor.pos())

    def _train_menu(self, key: str) -> None:
        if key == "cancel":
            self._session.cancel_start()
            self.refresh()
        elif key == "extend":
            self._actions.trigger("run.extend")
        elif key in ("stop_after_step", "stop_now"):
            self._session.command(key)
        elif key == "change_setting":
            self._window.show_page("setup")
        elif key in ("train", "train_lending"):
            self._actions.trigger(f"run.{key}")


def _resumes_by_train(run: RunSummary) -> bool:
    """Return whether Train resumes this run; an SFT run only until it has finished."""
    return run.kind in ("train", "outside") or (run.kind == "sft" and run.state != "finished")


def _cluster_of(session: Session) -> str:
    """Return the name of the cluster on which the selected run trains; empty for none."""
    spec = session.run.state.spec
    return spec.config.backend.cluster if spec else ""
