"""Queue of label requests (apply, undo, redo), sent to the engine one at a time in order. Each
request reports its outcome. After a failed label, its queued undo and redo are not sent."""

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Slot

from engine.protocol.problems import Problem
from studio.pages.trajectories.labels.draft import Draft
from studio.runtime.tasks import TaskScope

JOB = "label"
Place = tuple[str, int, int]


@dataclass(frozen=True)
class PendingLabel:
    """Draft to be committed, compared with the current one to tell whether that is queued."""

    run_id: str
    place: Place | None
    draft: Draft
    effect: str
    teaches: bool


@dataclass(frozen=True)
class LabelRequest:
    """Queued request: `ask` sends it, `done(response)` or `failed(problem, unsent)` is called.
    `pending` is None for undo and redo. `unsent` is the number of dropped undos and redos."""

    pending: PendingLabel | None
    ask: Callable[[], Coroutine[Any, Any, Any]]
    done: Callable[[Any], None]
    failed: Callable[[Problem, int], None]


class LabelQueue(QObject):
    """Request queue of a page, in its task scope."""

    def __init__(self, tasks: TaskScope, parent: QObject) -> None:
        super().__init__(parent)
        self._tasks = tasks
        self._requests: deque[LabelRequest] = deque()
        tasks.busy_changed.connect(self._go_on)

    def put(self, request: LabelRequest) -> None:
        """Append a request; it is sent after those before it."""
        self._requests.append(request)
        if not self._tasks.busy(JOB):
            self._send()

    def holds(self, pending: PendingLabel) -> bool:
        """Return whether a draft label is queued or being sent."""
        return any(request.pending == pending for request in self._requests)

    def _send(self) -> None:
        request = self._requests[0]
        self._tasks.run(JOB, request.ask(), self._done, self._failed)

    def _done(self, answer: Any) -> None:
        self._requests.popleft().done(answer)

    def _failed(self, problem: Problem) -> None:
        request, unsent = self._requests.popleft(), 0
        while request.pending is not None and self._requests and self._requests[0].pending is None:
            self._requests.popleft()
            unsent += 1
        request.failed(problem, unsent)

    @Slot(str, bool)
    def _go_on(self, job: str, busy: bool) -> None:
        if job == JOB and not busy and self._requests:
            self._send()
