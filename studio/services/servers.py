"""Servers as a person sees them: which there are, where a project trains, what is done with one.

In: the list, as the engine on this machine tells it, and wishes (methods). Out: `changed`. The
engine keeps the connections; nothing here does.
"""

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
"""A problem of before may stand for so long, once a server is asked to try again."""


class Hosts(QObject):
    """Owned by the session. `changed` also comes once a second while words count down;
    `lives_changed` when a run on a server was begun, went on or ended."""

    changed = Signal()
    lives_changed = Signal()

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

    # The list

    @property
    def all(self) -> list[HostView]:
        return self.store.hosts

    def view(self, name: str) -> HostView | None:
        return self.store.view(name)

    def words(self, name: str) -> HostWords:
        """How a server is, also one that nobody knows any more."""
        view = self.view(name)
        if view is not None:
            return words_of(view, time.time())
        if not self.store.found.revision:
            return HostWords("not asked yet", "not asked yet", "none", "neutral", "clock")
        return HostWords("not in the list", "not in the list", "gone", "bad", "octagon-alert")

    def connected(self, name: str) -> bool:
        view = self.view(name)
        return view is not None and view.state == "connected"

    def away(self, name: str) -> bool:
        """It is a server, and what goes on there is not heard of now."""
        return bool(name) and not self.connected(name)

    async def known(self) -> list[str]:
        """Aliases of the person's SSH configuration that are not in the list."""
        return (await self._link.client.known_hosts()).known

    @Slot(object)
    def take(self, found: HostList) -> None:
        lives = self.store.lives()
        self.store.take(found)
        self._tick.start() if self.store.counts_down else self._tick.stop()
        self._news.set()
        self.changed.emit()
        if self.store.lives() != lives:
            self.lives_changed.emit()

    def _answered(self, found: HostList) -> None:
        """The watcher may have heard of more by now."""
        if found.revision > self.store.found.revision:
            self.take(found)

    # Where a project trains

    def chosen(self, project: str) -> str:
        """The server; empty is this machine."""
        return self._settings.current.trains_on.get(project, "")

    def choose(self, project: str, name: str) -> None:
        """From now on it trains there; the way there is made."""
        others = {p: n for p, n in self._settings.current.trains_on.items() if p != project}
        self._settings.update(trains_on=others | ({project: name} if name else {}))
        view = self.view(name)
        if view is not None and view.state not in ("connected", *UNDER_WAY):
            self.act(name, "connect")
        self.changed.emit()

    def _unchoose(self, name: str) -> None:
        kept = {p: n for p, n in self._settings.current.trains_on.items() if n != name}
        self._settings.update(trains_on=kept)

    # What is done with one

    def act(
        self, name: str, action: HostAction, done: Done | None = None, failed: Failed | None = None
    ) -> None:
        self.tasks.run(f"{action} {name}", self._act(name, action), done, failed)

    async def _act(self, name: str, action: HostAction) -> None:
        self._answered(await self._link.client.act_on_host(name, ActOnHost(action=action)))
        if action == "forget":
            self._unchoose(name)
            self.changed.emit()

    def add(self, spec: HostSpec, done: Done | None = None, failed: Failed | None = None) -> None:
        """Write it down, or change what is written, and go there."""
        self.tasks.run(f"add {spec.name}", self._add(spec), done, failed)

    async def _add(self, spec: HostSpec) -> None:
        await self._link.client.add_host(AddHost(spec=spec))
        await self._act(spec.name, "connect")

    async def answer(self, name: str, question: Question, value: str | None) -> None:
        """None gives up. Raises Refused where nobody waits for it any more."""
        await self._link.client.answer_host(name, Answer(question=question.id, value=value))

    # What begins there

    async def ready(self, name: str) -> None:
        """Connected when this returns. Raises Refused with what keeps it away: it is tried again by
        itself then, or waits for a person."""
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
                return  # one that is not in the list is refused by who is asked to start there
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
        """Start something there, however long project and model take to get there; `ask` must be
        harmless when it is repeated. Raises AtelierError."""
        await self.ready(name)
        while True:
            try:
                return await ask(self._link.client)
            except LaunchError:
                if self.bringing(name) is None:
                    raise

    def bringing(self, name: str) -> tuple[int, int] | None:
        """Bytes done and in all, while a project or model is on its way there."""
        view = self.view(name)
        tick = view.tick if view is not None and view.state == "connected" else None
        return (tick.done, tick.total) if tick is not None and tick.stage == "syncing" else None

    def start_words(self, name: str) -> str:
        """For the button that waits for it."""
        return start_words(self.view(name), name)
