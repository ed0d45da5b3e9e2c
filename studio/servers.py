"""Servers in the window: what opens from anywhere, and the actions that are about them."""

from PySide6.QtCore import QObject

from studio.actions import Actions
from studio.frame import Frame
from studio.main_window import MainWindow
from studio.session import Session


class ServerDesk(QObject):
    """One per window."""

    def __init__(
        self, window: MainWindow, session: Session, actions: Actions, frame: Frame
    ) -> None:
        super().__init__(window)
        self._window, self._session = window, session
        actions.bind(
            engine_choose=frame.switcher.open_menu,
            servers_open=self.show_servers,
            servers_connect=self._connect,
            run_train_lending=lambda: session.train(lend=True),
        )

    def show_servers(self) -> None:
        self._window.show_page("settings")

    def _connect(self) -> None:
        """The server of the run that is looked at, else the one that the project trains on."""
        session = self._session
        run = session.run.summary
        name = run.host if run is not None and run.host else ""
        if name := name or session.hosts.chosen(session.project.path):
            session.hosts.act(name, "connect")
