"""Remote servers: their list, the server on which each project trains, and actions on a server. The
engine on this machine keeps the connections. `changed` is emitted when the list changes."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from engine.client import EngineClient
from engine.protocol.problems import LaunchError, Refused
from engine.protocol.requests.remote import (
    ActOnHost,
    AddHost,
    Answer,
    HostList,
    HostSpec,
    HostView,
    Question,
)
from studio.link.engine import EngineLink
from studio.models.event_feed import Feed
from studio.runtime.tasks import Done, Failed, TaskScope
from studio.services.settings import SettingsStore
from studio.store.servers.servers import HostStore, HostWords, start_words, words_of

T = TypeVar("T")
HostAction = Literal[
    "connect", "disconnect", "install", "roll_back", "take_over", "stop_engine", "remove", "forget"
]
UNDER_WAY = ("connecting", "asking", "installing", "starting")
TICK_MS = 1000
STALE_S = 1.0
"""Seconds for which an earlier problem may still be listed after a retry."""


class Hosts(QObject):
    """Remote servers of a session. `changed` is also emitted once a second while a countdown is
    shown; `run_states_changed` when a run on a server was started, resumed or ended."""

    changed = Signal()
    run_states_changed = Signal()

    def __init__(
        self, link: EngineLink, feed: Feed, settings: SettingsStore, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._link, self._settings = link, settings
        self.store = HostStore()
        self.tasks = TaskScope(self)
        self._news = asyncio.Event()
        self._tick = QTimer(self)
        self._tick.setInterval(TICK_MS)
        self._tick.timeout.connect(self.changed)
        feed.hosts_changed.connect(self.take)

    async def close(self) -> None:
        self._tick.stop()
        await self.tasks.close()

    # List of servers

    @property
    def all(self) -> list[HostView]:
        return self.store.hosts

    def view(self, name: str) -> HostView | None:
        """Return the state of a server; None if it is not in the list."""
        return self.store.view(name)

    def words(self, name: str) -> HostWords:
        """Return the state of a server for display, also if it is not in the list."""
        view = self.view(name)
        if view is not None:
            return words_of(view, time.time())
        if not self.store.found.revision:
            return HostWords("not loaded yet", "not loaded yet", "none", "neutral", "clock")
        return HostWords("not in the list", "not in the list", "gone", "bad", "octagon-alert")

    def connected(self, name: str) -> bool:
        view = self.view(name)
        return view is not None and view.state == "connected"

    def away(self, name: str) -> bool:
        """Return whether a server (empty: this machine, never) is disconnected, so that the states
        of its runs are unknown."""
        return bool(name) and not self.connected(name)

    async def known(self) -> list[str]:
        """Return the aliases in the SSH configuration, without servers that are in the list
        already."""
        return (await self._link.client.known_hosts()).known

    @Slot(object)
    def take(self, found: HostList) -> None:
        """Store a newer list of servers; emits `changed`, and `run_states_changed` if a run on a
        server has another state."""
        run_states = self.store.run_states()
        self.store.take(found)
        self._tick.start() if self.store.counts_down else self._tick.stop()
        self._news.set()
        self.changed.emit()
        if self.store.run_states() != run_states:
            self.run_states_changed.emit()

    def _answered(self, found: HostList) -> None:
        """Use the response unless the watcher has received a newer list."""
        if found.revision > self.store.found.revision:
            self.take(found)

    # Server of each project

    def chosen(self, project: str) -> str:
        """Return the name of the server on which a project (path) trains; empty is this machine."""
        return self._settings.current.trains_on.get(project, "")

    def choose(self, project: str, name: str) -> None:
        """Select the server (empty: this machine) on which a project (path) trains, and connect to
        it unless it is connected or connecting."""
        others = {p: n for p, n in self._settings.current.trains_on.items() if p != project}
        self._settings.update(trains_on=others | ({project: name} if name else {}))
        view = self.view(name)
        if view is not None and view.state not in ("connected", *UNDER_WAY):
            self.act(name, "connect")
        self.changed.emit()

    def _unchoose(self, name: str) -> None:
        kept = {p: n for p, n in self._settings.current.trains_on.items() if n != name}
        self._settings.update(trains_on=kept)

    # Actions on a server

    def act(
        self, name: str, action: HostAction, done: Done | None = None, failed: Failed | None = None
    ) -> None:
        """Perform an action such as connect or install on the server `name`, then call
        `done(result)` or `failed(problem)`."""
        self.tasks.run(f"{action} {name}", self._act(name, action), done, failed)

    async def _act(self, name: str, action: HostAction) -> None:
        self._answered(await self._link.client.act_on_host(name, ActOnHost(action=action)))
        if action == "forget":
            self._unchoose(name)
            self.changed.emit()

    def cancel_connection(self, name: str) -> None:
        """Disconnect from a server, or cancel the connection attempt; waits for requests in
        progress (add, connect, install), so that none of them connects again."""

        async def end() -> None:
            await self.tasks.settled(f"add {name}", f"connect {name}", f"install {name}")
            with contextlib.suppress(Refused):  # it was refused, so it is not in the list
                await self._act(name, "disconnect")

        self.tasks.run(f"disconnect {name}", end())

    def add(self, spec: HostSpec, done: Done | None = None, failed: Failed | None = None) -> None:
        """Add a server or change its settings, and connect to it; then call `done(result)` or
        `failed(problem)`."""
        self.tasks.run(f"add {spec.name}", self._add(spec), done, failed)

    async def _add(self, spec: HostSpec) -> None:
        await self._link.client.add_host(AddHost(spec=spec))
        await self._act(spec.name, "connect")

    async def answer(self, name: str, question: Question, value: str | None) -> None:
        """Answer an SSH prompt of the server `name` with `value`; None cancels the prompt. Raises
        Refused if the server no longer waits for this prompt."""
        await self._link.client.answer_host(name, Answer(question=question.id, value=value))

    # Start of runs

    async def ready(self, name: str) -> None:
        """Connect to a server and wait for the connection. Raises Refused with the reason if the
        attempt fails, though the engine may retry it. Returns without one if the server leaves the
        list."""
        view = self.view(name)
        if view is not None and view.state == "connected":
            return
        failures = view.failures if view else 0
        await self._act(name, "connect")
        patience = asyncio.get_running_loop().time() + STALE_S
        while True:
            self._news.clear()
            view = self.view(name)
            if view is None or view.state == "connected":
                return  # the engine refuses to start on a server that is not in the list
            if view.state in UNDER_WAY:
                patience = 0.0
            stale = asyncio.get_running_loop().time() < patience
            tried = view.state == "reconnecting" and view.failures > failures
            if view.problem is not None and (tried or (view.state == "stopped" and not stale)):
                raise Refused(view.problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALE_S):
                    await self._news.wait()

    async def begin(self, name: str, ask: Callable[[EngineClient], Awaitable[T]]) -> T:
        """Connect to the server `name` and return `ask(client)`. `ask` is repeated after each
        timeout while project or model are being uploaded, so it must be idempotent. Raises
        AtelierError."""
        await self.ready(name)
        while True:
            try:
                return await ask(self._link.client)
            except LaunchError:
                if self.bringing(name) is None:
                    raise

    def bringing(self, name: str) -> tuple[int, int] | None:
        """Return uploaded and total bytes of the project or model being uploaded to a server; None
        if nothing is uploaded."""
        view = self.view(name)
        tick = view.tick if view is not None and view.state == "connected" else None
        return (tick.done, tick.total) if tick is not None and tick.stage == "syncing" else None

    def start_words(self, name: str) -> str:
        """Describe what the start of a run on a server waits for, for the Train button."""
        return start_words(self.view(name), name)
