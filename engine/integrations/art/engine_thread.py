"""Connection of a script to its engine, in a separate thread and event loop, so that the script may
block its own loop.

The script's clients call a local proxy with a stable address. If the engine is gone, it is started
again, the run resumes, and the call is repeated. A repeated call never trains a step twice.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from engine.client import EngineClient
from engine.integrations.art.proxy import Relay
from engine.launcher.engine_root import checkout
from engine.launcher.interpreters import read_choice
from engine.launcher.local import find, start
from engine.protocol.problems import AtelierError, LaunchError, Refused
from engine.protocol.requests.scripts import CloseOutside, OpenOutside, OutsideRun
from engine.runtime.closing import cancel

T = TypeVar("T")

TRIES = 5
CLOSING_S = 60.0
GONE = ("engine.unreachable", "outside.not_open", "engine.http_401")
"""Problem codes that mean that the engine has ended or lost the session."""


@dataclass
class Line:
    """Connection of one model of the script to its run."""

    request: OpenOutside
    found: OutsideRun | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: int = 0
    """Number of times that the run was opened."""

    @property
    def run_id(self) -> str:
        assert self.found is not None
        return self.found.run.id


class Link:
    """Connection of a script to the engine, in a thread that starts with the first call and ends
    with `close` or with the script."""

    def __init__(self, workspace: Path, python: str | None) -> None:
        self.workspace, self._python = workspace, python
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: EngineClient | None = None
        self._relay = Relay(self._gateway_of, self._again)
        self.lines: dict[str, Line] = {}
        """Connections by gateway key."""

    # From the script's thread

    async def ask(self, work: Coroutine[object, object, T]) -> T:
        return await asyncio.wrap_future(self._submit(work))

    def wait(self, work: Coroutine[object, object, T], timeout_s: float) -> T:
        return self._submit(work).result(timeout_s)

    def _submit(self, work: Coroutine[object, object, T]) -> "Future[T]":
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="atelier", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def close(self, finished: bool) -> None:
        """Close all runs, as finished or (`finished` False) as interrupted, and stop the thread
        with the connection; the next call starts another thread."""
        if self._loop is not None:
            try:
                await self.ask(self.leave(finished))
            finally:
                await asyncio.to_thread(self._end)

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        self._loop = self._thread = None
        asyncio.run_coroutine_threadsafe(_settle(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    # In its own

    async def open(self, request: OpenOutside) -> OutsideRun:
        """Open or resume the run of a model. Returns it with the local proxy as `base_url`."""
        line = self.lines.setdefault(request.key, Line(request))
        await self._open(line, again=False)
        assert line.found is not None
        address = await self._relay.start()
        return line.found.model_copy(update={"base_url": address})

    async def with_run(self, key: str, work: Callable[[EngineClient, str], Awaitable[T]]) -> T:
        """Call `work` with engine client and run id of the model that was opened with `key`; retry
        with a new engine if the current one has ended. Raises the engine's errors."""
        line = self.lines[key]
        for _ in range(TRIES - 1):
            seen = line.opened
            try:
                return await work(await self._engine(), line.run_id)
            except (Refused, LaunchError) as error:
                if error.problem.code not in GONE:
                    raise
                await self._again(key, seen)
        return await work(await self._engine(), line.run_id)

    async def leave(self, finished: bool) -> None:
        """Close all runs, as finished or (`finished` False) as interrupted, and disconnect; an
        engine that no longer answers is ignored."""
        for key, line in self.lines.items():
            if line.found is None or self._client is None:
                continue
            try:
                await self._client.close_outside(
                    line.run_id, CloseOutside(key=key, finished=finished)
                )
            except LaunchError:
                continue  # an engine that is gone has nothing to close
        self.lines.clear()
        await self._relay.close()
        if self._client:
            await self._client.close()
            self._client = None

    async def _open(self, line: Line, again: bool) -> None:
        request = line.request.model_copy(update={"again": again})
        line.found = await (await self._engine()).open_outside(request)
        line.opened += 1

    async def _again(self, key: str, seen: int) -> None:
        """Reopen the run with this key, unless another call has reopened it since its count of
        openings was `seen`."""
        line = self.lines[key]
        async with line.lock:
            if line.opened != seen:
                return
            for attempt in range(TRIES):
                try:
                    await self._forget_dead()
                    await self._open(line, again=True)
                    return
                except AtelierError as error:
                    if error.problem.code != "engine.unreachable" or attempt == TRIES - 1:
                        raise
                    await asyncio.sleep(attempt)

    async def _forget_dead(self) -> None:
        """Drop the connection if its engine no longer runs, so that the next call finds or starts
        one."""
        if self._client:
            endpoint = await find(self.workspace)
            if endpoint is None or endpoint.port != self._client.port:
                client, self._client = self._client, None
                await client.close()

    async def _engine(self) -> EngineClient:
        if self._client is None:
            endpoint = await find(self.workspace)
            if endpoint is None:
                python = engine_python(self._python)
                endpoint = await start(self.workspace, python)
            self._client = EngineClient(endpoint.port, endpoint.token)
        return self._client

    async def _gateway_of(self, key: str) -> tuple[str, int] | None:
        """Return address and number of openings of the run with this key; None if unknown."""
        line = self.lines.get(key)
        if line is None or line.found is None:
            return None
        return line.found.base_url, line.opened


async def _settle() -> None:
    """Cancel all other tasks of this loop and wait for them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await cancel(*others)
    await asyncio.get_running_loop().shutdown_default_executor()


VARIABLE = "ATELIER_PYTHON"
NEEDED = ("apsw", "starlette", "uvicorn", "psutil")
"""Packages that an engine cannot start without."""


def engine_python(given: str | None) -> str | None:
    """Path of the Python that starts an engine: `given`, else that in the environment variable;
    None if the running Python can do it; else that of the selected engine, else that of the
    checkout. Raises LaunchError if none exists."""
    if named := given or os.environ.get(VARIABLE):
        return named
    if all(find_spec(name) for name in NEEDED):
        return None
    choice = read_choice().current
    if not choice.built_in:
        return str(choice.python)
    own = checkout() / ".venv" / "bin" / "python"
    if own.exists():
        return str(own)
    raise LaunchError.of(
        "engine.no_python",
        "This script's Python cannot run an engine, and no other Python was found.",
        f"Set up Atelier with `python3 packaging/bootstrap.py setup`, or set the Python of an "
        f"engine with AtelierBackend(python=…) or {VARIABLE}.",
        where=str(own),
    )
