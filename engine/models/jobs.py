"""Queue of downloads, one after another, each in a process of its own; survives the engine."""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from engine.models.partial import (
    Record,
    arrived_bytes,
    discard,
    forget,
    is_elsewhere,
    record_of,
    records,
    save,
)
from engine.models.registry import cache_dir, starter_called
from engine.protocol.problems import AtelierError, ModelError, Problem
from engine.protocol.requests.models import DownloadState, ModelDownload
from engine.runtime.child import Child, ChildDied
from engine.runtime.variables import without_secrets

ROOT = Path(__file__).parents[2]
WINDOW_S = 5.0
"""Seconds over which the speed is measured."""
LOST = ("models.hub_unreachable", "models.download_died")
"""Problem codes of interrupted downloads, shown as `interrupted` instead of `failed`."""


class DownloadQueue:
    """Downloads of models. `token` returns the hub's access token, or None for the one that
    huggingface_hub finds; `on_change` is called when a model has arrived or was discarded."""

    def __init__(
        self,
        token: Callable[[], str | None] = lambda: os.environ.get("HF_TOKEN"),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.pids: set[int] = set()
        """PIDs of the download processes."""
        self._token, self._on_change = token, on_change
        self._waiting: list[str] = []
        self._current: _Running | None = None
        self._closed = False

    @property
    def token(self) -> str | None:
        """Access token of the hub; None for the one that huggingface_hub finds."""
        return self._token()

    @property
    def busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def start(self, name: str, weights: bool | None = None) -> None:
        """Queue a download, or resume one. `weights` False leaves the weights out (None: as the
        download was begun). Idempotent."""
        if self._closed or self._is_active(name):
            return
        starter = starter_called(name)
        title = starter.title if starter else name.rpartition("/")[2]
        record = record_of(name) or Record(name=name, title=title, queued_at=time.time())
        total = starter.download_bytes if starter else record.total_bytes
        changed = {"paused": False, "problem": None, "total_bytes": total}
        if weights is not None:
            changed["weights"] = weights
        save(record.model_copy(update=changed))
        self._waiting.append(name)
        self._advance()

    async def pause(self, name: str) -> None:
        """Stop a download and keep the downloaded part."""
        await self._stop(name)
        if record := record_of(name):
            save(record.model_copy(update={"paused": True}))
        self._advance()

    async def cancel(self, name: str) -> None:
        """Stop a download and delete the downloaded part. Raises ModelError while another process
        downloads it."""
        await self._stop(name)
        if is_elsewhere(name):
            raise ModelError.of(
                "models.elsewhere",
                f"Another process is downloading {name}.",
                "Pause that download first.",
            )
        await asyncio.to_thread(discard, name)
        forget(name)
        self._on_change()
        self._advance()

    async def close(self) -> None:
        """Stop all downloads; any engine can resume them."""
        self._closed = True
        self._waiting.clear()
        if self._current:
            await self._current.stop()

    def view(self) -> list[ModelDownload]:
        """All downloads in the order in which they were queued, with their progress."""
        return [self._view(record) for record in records()]

    def _view(self, record: Record) -> ModelDownload:
        current = self._current
        if current and current.name == record.name:
            return current.view(record)
        elsewhere = is_elsewhere(record.name)
        return ModelDownload(
            name=record.name,
            title=record.title,
            state=self._state(record, elsewhere),
            done_bytes=arrived_bytes(record),
            total_bytes=record.total_bytes,
            elsewhere=elsewhere,
            problem=record.problem,
        )

    def _state(self, record: Record, elsewhere: bool) -> DownloadState:
        if elsewhere:
            return "downloading"
        if record.name in self._waiting:
            return "queued"
        if record.problem:
            return "interrupted" if record.problem.code in LOST else "failed"
        return "paused" if record.paused else "interrupted"

    def _is_active(self, name: str) -> bool:
        return name in self._waiting or bool(self._current and self._current.name == name)

    async def _stop(self, name: str) -> None:
        if name in self._waiting:
            self._waiting.remove(name)
        if self._current and self._current.name == name:
            await self._current.stop()

    def _advance(self) -> None:
        """Begin the next download unless one is running."""
        if self._current is None and self._waiting and not self._closed:
            self._current = _Running(self._waiting.pop(0), self.token, self.pids, self._ended)

    def _ended(self) -> None:
        self._current = None
        self._on_change()
        self._advance()


class _Running:
    """Download that is running; `ended` is called after its process has exited."""

    def __init__(
        self, name: str, token: str | None, pids: set[int], ended: Callable[[], None]
    ) -> None:
        self.name = name
        self._token, self._pids = token, pids
        self._stage: DownloadState = "downloading"
        self._done: int | None = None
        self._total: int | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._ending = False
        self._task = asyncio.create_task(self._work(), name=f"download {name}")
        self._task.add_done_callback(lambda _: ended())

    async def stop(self) -> None:
        """Kill the process, and wait until it has ended; the downloaded part is kept."""
        if not self._ending:
            self._task.cancel()
        await asyncio.wait([self._task])

    def view(self, record: Record) -> ModelDownload:
        speed, left = self._speed(), None
        if speed and self._total is not None and self._done is not None:
            left = max(0.0, (self._total - self._done) / speed)
        return ModelDownload(
            name=record.name,
            title=record.title,
            state=self._stage,
            done_bytes=arrived_bytes(record) if self._done is None else self._done,
            total_bytes=record.total_bytes if self._total is None else self._total,
            speed=speed,
            rest_s=left,
        )

    def _speed(self) -> float | None:
        """Return bytes per second over the last `WINDOW_S` seconds; None if not measured."""
        if len(self._samples) < 2 or self._stage != "downloading":
            return None
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - begin) if end > begin else None

    async def _work(self) -> None:
        try:
            await self._follow()
        except ChildDied as error:
            self._keep(
                Problem(
                    code="models.download_died",
                    message=f"The download of {self.name} was interrupted.",
                    hint="Resume the download; the downloaded part is kept.",
                    detail=error.problem.message,
                )
            )
        except AtelierError as error:
            self._keep(error.problem)

    async def _follow(self) -> None:
        log = cache_dir() / "downloads" / "download.log"
        argv = [sys.executable, "-m", "engine.models.serve"]
        child = await Child.spawn(
            "download", argv, cwd=ROOT, log=log, environment=without_secrets()
        )
        self._pids.add(child.pid)
        try:
            record = record_of(self.name)
            weights = record is None or record.weights
            async for value in child.stream(
                "download", name=self.name, token=self._token, weights=weights
            ):
                if "stage" in value:
                    self._take(value["stage"], int(value["done"]), int(value["total"]))
        finally:
            self._ending = True  # from here on the task ends by itself
            await child.kill()
            self._pids.discard(child.pid)

    def _take(self, stage: DownloadState, done: int, total: int) -> None:
        self._stage, self._done, self._total = stage, done, total
        now = time.monotonic()
        self._samples.append((now, done))
        while now - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    def _keep(self, problem: Problem) -> None:
        """Store why the download ended, for the list."""
        if record := record_of(self.name):
            save(record.model_copy(update={"problem": problem}))
