"""Single window per user and workspace: a second start raises the first window and exits."""

import getpass
import hashlib

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

WAIT_MS = 500


class SingleInstance(QObject):
    """Single instance lock of a workspace. Emits `asked(project)` when a second start asks to show
    the window with a project (path)."""

    project_requested = Signal(str)

    def __init__(self, workspace: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        seed = f"{getpass.getuser()}:{workspace}".encode()
        self._name = f"atelier-studio-{hashlib.sha256(seed).hexdigest()[:12]}"
        self._server: QLocalServer | None = None
        self._callers: list[QLocalSocket] = []

    def raise_first(self, project: str) -> bool:
        """Ask a running studio to show its window with a project (path; empty: none). Returns False
        if no studio runs."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(WAIT_MS):
            return False
        socket.write(f"{project}\n".encode())
        socket.waitForBytesWritten(WAIT_MS)
        socket.disconnectFromServer()
        return True

    def listen(self) -> None:
        """Listen as the first instance; the socket of a studio that has crashed is replaced."""
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._accept)
        self._server.listen(self._name)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def _accept(self) -> None:
        while self._server is not None and self._server.hasPendingConnections():
            caller = self._server.nextPendingConnection()
            self._callers.append(caller)
            caller.readyRead.connect(self._read)
            caller.disconnected.connect(self._read)
        self._read()

    @Slot()
    def _read(self) -> None:
        """Read a line from each client that has sent one, and close its connection."""
        for caller in list(self._callers):
            if caller.canReadLine():
                self._callers.remove(caller)
                line = bytes(caller.readLine().data()).decode(errors="replace").strip()
                caller.close()
                self.project_requested.emit(line)
            elif caller.state() == QLocalSocket.LocalSocketState.UnconnectedState:
                self._callers.remove(caller)
