"""Selection of the runs whose events are streamed: active runs, shown runs, and some recent ones.
Each stream holds a connection while it is open, so the number of streams is limited."""

from collections.abc import Callable

from engine.protocol.records.runs import ACTIVE_STATES
from studio.link.event_pump import EventPump
from studio.store.runs.runs import RunStore

MOST_IDLE = 24
"""Maximum number of idle streams; the oldest are closed, and opened again when the run is shown."""


class Following:
    """Event streams of the followed runs; `shown` returns the ids of the runs on screen."""

    def __init__(self, pump: EventPump, runs: RunStore, shown: Callable[[], set[str]]) -> None:
        self._pump, self._runs, self._shown = pump, runs, shown
        self._followed: dict[str, None] = {}
        """Ids of the followed runs, the most recently requested last (an ordered set)."""

    def begin(self, run_id: str) -> None:
        """Follow the events of a run after the last known one; a damaged run is not followed. Of
        the ended runs that no page shows, only the 24 followed last keep their streams."""
        run = self._runs.summary(run_id)
        if run is not None and run.state == "damaged":
            self.forget(run_id)
            return
        self._followed.pop(run_id, None)
        self._followed[run_id] = None
        self._pump.follow(run_id, self._runs.state(run_id).seq)
        idle = [one for one in self._followed if self._is_idle(one)]
        for one in idle[: max(0, len(idle) - MOST_IDLE)]:
            del self._followed[one]
            self._pump.forget(one)

    def forget(self, run_id: str) -> None:
        """Stop following a run."""
        if run_id in self._followed:
            del self._followed[run_id]
            self._pump.forget(run_id)

    def restart(self, run_id: str, seq: int) -> None:
        """Restart the stream of a followed run after event `seq`, because events are missing."""
        self._pump.forget(run_id)
        if run_id in self._followed:
            self._pump.follow(run_id, seq)

    def _is_idle(self, run_id: str) -> bool:
        run = self._runs.summary(run_id)
        goes_on = run is not None and run.state in (*ACTIVE_STATES, "queued")
        return not goes_on and run_id not in self._shown()
