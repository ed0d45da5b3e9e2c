"""Settings card with the remote servers and the next action for each."""

import time
from functools import partial

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QWidget

from studio.pages.servers.rows import HostRow
from studio.services.servers import Hosts
from studio.store.servers.server_rows import row_of
from studio.widgets.cards.card import Card
from studio.widgets.controls.buttons import Button
from studio.widgets.text.text import Text

NONE = (
    "No servers yet. Projects are uploaded to a server and train there; runs are "
    "mirrored here and continue when this machine is off."
)


class ServersCard(Card):
    """Card of remote servers; emits `host_wanted(name)`, `install_wanted(name)` and
    `add_wanted()`."""

    host_wanted = Signal(str)
    install_wanted = Signal(str)
    add_wanted = Signal()

    def __init__(self, hosts: Hosts, parent: QWidget | None = None) -> None:
        super().__init__(
            "Remote servers", "train on other machines over SSH", padding=16, parent=parent
        )
        self._hosts = hosts
        self.rows: dict[str, HostRow] = {}
        self._none = Text(NONE, "body", tone="muted", wrap=True)
        add = Button("Add a server", "outlined", icon="plus", height=28)
        add.clicked.connect(self.add_wanted)
        assert self.header is not None
        self.header.add_right(add)
        self.body.setSpacing(0)
        self.body.addWidget(self._none)
        hosts.changed.connect(self.show_hosts)
        self.show_hosts()

    @Slot()
    def show_hosts(self) -> None:
        """Update the rows; rows of remaining servers are reused to keep the focus."""
        names = [view.spec.name for view in self._hosts.all]
        if names != list(self.rows):
            self._make(names)
        for view in self._hosts.all:
            self.rows[view.spec.name].show_row(row_of(view, time.time()))
        self._none.setVisible(not names)

    def _make(self, names: list[str]) -> None:
        for row in self.rows.values():
            self.body.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = {}
        for place, name in enumerate(names):
            row = self.rows[name] = HostRow(place == 0)
            row.pressed.connect(partial(self._pressed, name))
            self.body.addWidget(row)

    def _connected(self, name: str) -> bool:
        """Return whether the server is connected: its engine can then only be updated."""
        view = self._hosts.view(name)
        return view is not None and view.state == "connected"

    def _pressed(self, name: str, verb: str) -> None:
        if verb == "open":
            self.host_wanted.emit(name)
        elif verb == "install" and not self._connected(name):
            self.install_wanted.emit(name)
        else:
            self._hosts.act(name, verb)  # type: ignore[arg-type]
