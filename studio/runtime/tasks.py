"""Task scopes: every coroutine of the studio has an owner that shows, replaces and cancels it by
name."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import QObject, Signal

from engine.protocol.problems import AtelierError, Problem

log = logging.getLogger(__name__)

Done = Callable[[Any], None]
Failed = Callable[[Problem], None]


class TaskScope(QObject):
    """Jobs of one page or dialog. A new job replaces a running one of the same name. A job ends in
    one of three ways: `done(result)`, `failed(problem)` (its handler, else the signal), or without
    a call when it is cancelled."""

    busy_changed = Signal(str, bool)
    failed = Signal(str, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._jobs: dict[str, asyncio.Task[Any]] = {}
        self._running: set[asyncio.Task[Any]] = set()  # with those cancelled that have not ended
        self._closed = False

    def run(
        self,
        name: str,
        job: Coroutine[Any, Any, Any],
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> "asyncio.Task[None] | None":
        """Start a job on the running loop; a running job of the same name is cancelled. At its end,
        `done(result)` (None: not called) or `failed(problem)` (None: the signal `failed` is
        emitted) is called. Returns its task, or None if the scope is closed."""
        if self._closed:
            job.close()
            return None
        self.cancel(name)
        task = asyncio.get_running_loop().create_task(self._carry(name, job, done, failed))
        self._jobs[name] = task
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(name, ended, job))
        self.busy_changed.emit(name, True)
        return task

    def busy(self, name: str) -> bool:
        return name in self._jobs

    async def settled(self, *names: str) -> None:
        """Wait until no job with one of these names is running."""
        while running := [self._jobs[name] for name in names if name in self._jobs]:
            await asyncio.wait(running)
            await asyncio.sleep(0)  # the callback that forgets the job

    def cancel(self, name: str) -> None:
        """Cancel a job; its handlers are not called."""
        task = self._jobs.pop(name, None)
        if task is not None and not task.done():
            task.cancel()

    async def close(self) -> None:
        """Cancel all jobs and wait until they have ended, also those that were replaced or
        cancelled before."""
        self._closed = True
        tasks = list(self._running)
        for name in list(self._jobs):
            self.cancel(name)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(
        self, name: str, job: Coroutine[Any, Any, Any], done: Done | None, failed: Failed | None
    ) -> None:
        try:
            result = await job
        except AtelierError as error:
            self._fail(name, error.problem, failed)
        except Exception as error:
            log.exception("job %s", name)
            self._fail(name, unexpected(error), failed)
        else:
            if done is not None:
                done(result)

    def _fail(self, name: str, problem: Problem, failed: Failed | None) -> None:
        if failed is not None:
            failed(problem)
        else:
            self.failed.emit(name, problem)

    def _ended(self, name: str, task: "asyncio.Task[None]", job: Coroutine[Any, Any, Any]) -> None:
        job.close()  # avoids the warning of a coroutine that was never awaited
        self._running.discard(task)
        if self._jobs.get(name) is task:
            del self._jobs[name]
        if name not in self._jobs and not self._closed:
            self.busy_changed.emit(name, False)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("handler of job %s", name, exc_info=error)


def unexpected(error: BaseException) -> Problem:
    """Return the Problem that reports an unexpected exception (a bug)."""
    return Problem(
        code="studio.defect",
        message=f"Unexpected error in the studio: {type(error).__name__}: {error}",
        hint="Training is not affected. The log has the traceback.",
    )


def command_job(action: str, run_id: str) -> str:
    """Return the task name under which the command `action` is sent to a run."""
    return f"{action} {run_id}"
