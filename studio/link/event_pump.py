"""Event pump: a thread with its own asyncio loop that follows runs and watches the engine.

Input: runs to follow, each with its last `seq`. Output, called in the pump's thread: batches of
events at most 30 times a second, the state of the connection, runs that the engine refuses to
stream, and the list of servers after every change. The composition root passes these to Qt."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from engine.client import EngineClient
from engine.launcher.local import Endpoint
from engine.protocol.problems import AtelierError, LaunchError, Problem
from engine.protocol.requests.remote import HostList
from studio.link.backoff import Backoff
from studio.link.engine_state import Contact, LinkState
from studio.link.follower import Events, Follower
from studio.link.server_watcher import HostWatcher

log = logging.getLogger(__name__)

FLUSH_S = 1 / 30
PING_S = 5.0
GONE_AFTER = 4


class Listener(Protocol):
    """Receiver of the pump's output; every method is called in the pump's thread and must return at
    once."""

    def receive_events(self, run_id: str, events: Events) -> None: ...

    def receive_link(self, state: LinkState) -> None: ...

    def receive_loss(self, run_id: str, problem: Problem) -> None: ...

    def receive_hosts(self, found: HostList) -> None: ...


@dataclass
class _Followed:
    follower: Follower
    task: "asyncio.Task[None]"


class EventPump:
    """Thread that follows runs; started and stopped once. `follow` and `forget` may be called from
    any thread."""

    def __init__(self, find: Callable[[], Awaitable[Endpoint | None]], listener: Listener) -> None:
        self._find = find
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="event-pump", daemon=True)
        self._ready = threading.Event()
        self._client: EngineClient | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._state = LinkState()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Close every stream and wait up to `timeout_s` seconds for the thread to end; returns in
        either case. The engine and its runs continue."""
        if self._thread.is_alive():
            self._call(self._stopping.set)
            self._thread.join(timeout_s)

    def follow(self, run_id: str, after: int = 0) -> None:
        """Stream the events of a run that come after the sequence number `after`; no effect if the
        run is followed already."""
        self._call(self._follow, run_id, after)

    def forget(self, run_id: str) -> None:
        """Stop streaming the events of a run."""
        self._call(self._forget, run_id)

    def nudge(self) -> None:
        """Retry a lost connection to the engine now instead of after the delay."""
        self._call(self._wake_up.set)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop closed between the two lines
                self._loop.call_soon_threadsafe(function, *arguments)

    # The methods below run in the pump's thread.

    def _work(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping, self._wake_up = asyncio.Event(), asyncio.Event()
        self._followed: dict[str, _Followed] = {}
        self._opening = asyncio.Lock()
        self._ready.set()
        watcher = HostWatcher(self._reach, self._listener.receive_hosts, self._wake_up.set)
        workers = [
            asyncio.create_task(work) for work in (self._watch(), self._flush(), watcher.run())
        ]
        await self._stopping.wait()
        tasks = [*workers, *(followed.task for followed in self._followed.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._drop_client()
        await asyncio.gather(*self._closing)

    def _follow(self, run_id: str, after: int) -> None:
        followed = self._followed.get(run_id)
        if followed and not followed.task.done():
            return
        follower = Follower(
            run_id,
            after,
            self._reach,
            lambda problem: self._listener.receive_loss(run_id, problem),
            self._wake_up.set,
        )
        self._followed[run_id] = _Followed(follower, asyncio.create_task(follower.run()))

    def _forget(self, run_id: str) -> None:
        if followed := self._followed.pop(run_id, None):
            followed.task.cancel()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            for run_id, followed in list(self._followed.items()):
                if events := followed.follower.take():
                    self._listener.receive_events(run_id, events)

    async def _watch(self) -> None:
        """Poll the engine until cancelled, and report the state of the connection, which only this
        method does."""
        backoff = Backoff()
        while True:
            try:
                await self._ping()
                backoff.worked()
                await self._wait(PING_S)
            except AtelierError as error:
                await self._fail(backoff, error.problem)
            except Exception as error:
                log.exception("the engine's state cannot be polled")
                await self._fail(backoff, _defect(error))

    async def _ping(self) -> None:
        client = await self._reach()
        sent_at = time.monotonic()
        info = await client.info()
        self._emit_state(LinkState("connected", info, time.monotonic() - sent_at))

    async def _fail(self, backoff: Backoff, problem: Problem) -> None:
        await self._drop_client()
        wait_s = backoff.failed()
        await self._count_down(wait_s, backoff.failures, problem)

    async def _count_down(self, wait_s: float, failures: int, problem: Problem) -> None:
        contact: Contact = "gone" if failures >= GONE_AFTER else "reconnecting"
        end = time.monotonic() + wait_s
        while (left := end - time.monotonic()) > 0:
            state = replace(self._state, retry_s=max(1, round(left)), problem=problem)
            self._emit_state(replace(state, contact=contact, latency_s=None))
            if await self._wait(min(1.0, left)):
                return

    async def _wait(self, seconds: float) -> bool:
        """Sleep; return True if woken up early. Before Python 3.12, `wait_for` misses cancellations
        that coincide with the wake-up."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()
        except TimeoutError:
            return False
        self._wake_up.clear()
        return True

    def _emit_state(self, state: LinkState) -> None:
        if state != self._state:
            self._state = state
            self._listener.receive_link(state)

    async def _reach(self) -> EngineClient:
        """Return the client of the running engine. Raises LaunchError if there is none."""
        async with self._opening:
            if self._client is None:
                endpoint = await self._find()
                if endpoint is None:
                    raise _no_engine()
                self._client = EngineClient(endpoint.port, endpoint.token)
            return self._client

    async def _drop_client(self) -> None:
        """Close the client's connections completely, even if the waiting task is cancelled."""
        client, self._client = self._client, None
        if client is not None:
            closing = asyncio.create_task(client.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)


def _no_engine() -> AtelierError:
    return LaunchError.of(
        "engine.unreachable",
        "No engine responds on this machine.",
        "Start the engine in Settings; runs resume from their last checkpoint.",
    )


def _defect(error: Exception) -> Problem:
    return Problem(
        code="link.garbled",
        message="The engine's response cannot be parsed.",
        hint="Studio and engine may have different versions. Restart the engine.",
        detail=f"{type(error).__name__}: {error}",
    )
