"""Sheets and actions of remote servers and clusters, available from everywhere in the window."""

from PySide6.QtCore import QObject

from studio.actions.actions import Actions
from studio.main_window import MainWindow
from studio.pages.clusters.sheet import ClusterSheet
from studio.pages.clusters.start_sheet import StartSheet
from studio.pages.servers.server_sheet import HostSheet
from studio.pages.servers.transfers import MoveSheet
from studio.pages.servers.wizard import AddServerSheet
from studio.pages.settings.page import SettingsPage
from studio.services.session import Session
from studio.services.ssh_prompts import HostPrompts
from studio.shell.window_state import Frame
from studio.widgets.cards.sheet import Sheet


class ServerController(QObject):
    """Controller of the server wizard, server sheet, SSH prompts and cluster sheets."""

    def __init__(
        self, window: MainWindow, session: Session, actions: Actions, frame: Frame
    ) -> None:
        super().__init__(window)
        self._window, self._session = window, session
        tasks = session.hosts.tasks
        self.wizard = AddServerSheet(session, tasks, window.body)
        self.sheet = HostSheet(session, tasks, window.body)
        cluster_tasks = session.clusters.tasks
        self.cluster_sheet = ClusterSheet(session, cluster_tasks, window.body)
        self.start_sheet = StartSheet(session, cluster_tasks, window.body)
        self.prompts = HostPrompts(window, session.hosts, tasks)
        self.moves = MoveSheet(session, tasks, window.body)
        self.sheet.install_wanted.connect(self.wizard.go_on)
        self.sheet.change_wanted.connect(self.wizard.change)
        self.start_sheet.add_wanted.connect(self.add_cluster)
        frame.send_wanted.connect(self._send)
        actions.bind(
            engine_choose=frame.switcher.open_menu,
            servers_add=self.add,
            servers_open=self.show_servers,
            clusters_add=self.add_cluster,
            clusters_start=self.start_cluster,
            clusters_open=self.show_clusters,
            servers_connect=self._connect,
            run_bring_home=self._bring_home,
            run_send=frame.choose_server,
            run_train_lending=lambda: session.train(lend=True),
        )

    def serve(self, page: SettingsPage) -> None:
        """Connect the signals of the lists in Settings to the sheets."""
        page.servers.add_wanted.connect(self.add)
        page.servers.host_wanted.connect(self._open)
        page.servers.install_wanted.connect(self._install)
        page.clusters.add_wanted.connect(self.add_cluster)
        page.clusters.start_wanted.connect(self.start_cluster)
        page.clusters.edit_wanted.connect(self._edit_cluster)

    def add(self) -> None:
        self._close_others(self.wizard)
        self.wizard.begin()

    def add_cluster(self) -> None:
        """Open the sheet for a new cluster."""
        self._close_others(self.cluster_sheet)
        self.cluster_sheet.begin()

    def start_cluster(self) -> None:
        """Open the sheet that starts SkyRL as a cluster."""
        self._close_others(self.start_sheet)
        self.start_sheet.begin()

    def show_servers(self) -> None:
        """Show the server list in Settings."""
        self._window.show_page("settings")
        page = self._window.body.currentWidget()
        if isinstance(page, SettingsPage):
            page.show_servers()

    def show_clusters(self) -> None:
        """Show the list of clusters in Settings."""
        self._window.show_page("settings")
        page = self._window.body.currentWidget()
        if isinstance(page, SettingsPage):
            page.show_clusters()

    def _edit_cluster(self, name: str) -> None:
        view = self._session.clusters.view(name)
        started = view is not None and view.spec.skyrl is not None
        sheet = self.start_sheet if started else self.cluster_sheet
        self._close_others(sheet)
        sheet.change(name)

    def _open(self, name: str) -> None:
        self._close_others(self.sheet)
        self.sheet.show_host(name)

    def _install(self, name: str) -> None:
        """Open the wizard for a server in the list, to survey it and install an engine."""
        self._close_others(self.wizard)
        self.wizard.go_on(name)

    def _bring_home(self) -> None:
        if (run := self._session.run.summary) is not None:
            self.moves.bring_home(run)

    def _send(self, name: str) -> None:
        if (run := self._session.run.summary) is not None:
            self.moves.send(run, name)

    def _close_others(self, kept: Sheet) -> None:
        """Close the sheet that is open, unless it is `kept`."""
        sheets = (self.sheet, self.wizard, self.cluster_sheet, self.start_sheet)
        for sheet in sheets:
            if sheet is not kept and sheet.is_open():
                sheet.close_sheet()

    def _connect(self) -> None:
        """Connect the server of the selected run, or else of the open project."""
        session = self._session
        run = session.run.summary
        name = run.host if run is not None and run.host else ""
        if name := name or session.hosts.chosen(session.project.path):
            session.hosts.act(name, "connect")
