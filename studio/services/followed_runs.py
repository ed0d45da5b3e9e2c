"""Which runs' events are followed: those that go on or are shown, and the last few that were.

A stream holds a connection for as long as it is followed; whoever looks at many runs must not use
up all that there are.
"""

from collections.abc import Callable

from engine.protocol.records.runs import ACTIVE_STATES
from studio.link.event_pump import EventPump
from studio.store.runs.runs import RunStore

MOST_IDLE = 24
"""Of ended runs that are not shown; the oldest are let go, and followed again when looked at."""


class Following:
    """`shown` says which runs are looked at now."""

    def __init__(self, pump: EventPump, runs: RunStore, shown: Callable[[], set[str]]) -> None:
        self._pump, self._runs, self._shown = pump, runs, shown
        self._followed: dict[str, None] = {}
        """Run ids; the one that was asked for last stands last."""

    def begin(self, run_id: str) -> None:
        """Follow a run from the last known event; a run that is followed already is not changed.
        The events of a damaged run cannot be read, so they are not requested."""
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
        """Follow it no longer."""
        if run_id in self._followed:
            del self._followed[run_id]
            self._pump.forget(run_id)

    def anew(self, run_id: str, seq: int) -> None:
        """Its stream has a hole behind `seq`."""
        self._pump.forget(run_id)
        if run_id in self._followed:
            self._pump.follow(run_id, seq)

    def _is_idle(self, run_id: str) -> bool:
        run = self._runs.summary(run_id)
        goes_on = run is not None and run.state in (*ACTIVE_STATES, "queued")
        return not goes_on and run_id not in self._shown()
