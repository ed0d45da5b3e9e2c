"""Bridge from the event pump to Qt: batches cross into the GUI thread and are folded in small
slices.

Input: calls by the event pump, in its thread. Output: signals in the GUI thread, at most 30 times
a second per run. Wired by the composition root; the models of the pages listen."""

import logging
import time
from collections import deque

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from engine.protocol.events.history import History
from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostList
from studio.link.engine_state import LinkState
from studio.link.follower import Events
from studio.store.runs.runs import RunStore
from studio.store.runs.state import SequenceGap

log = logging.getLogger(__name__)

SLICE_S = 0.008
"""Maximum seconds of folding before the GUI thread processes other events."""
EMIT_S = 1 / 30
SLOW_EMIT_S, SLOW_FOR_S = 0.5, 2.0
"""Slower updates while long histories arrive, and for so many seconds after one: each changes
everything on screen."""
AT_ONCE = 50


class Feed(QObject):
    """Event feed; implements studio.link.event_pump.Listener."""

    run_changed = Signal(str)
    link_changed = Signal(object)
    run_lost = Signal(str, object)
    gap_found = Signal(str, int)
    """(run id, seq): events are missing, so the run must be followed again from `seq`."""
    hosts_changed = Signal(object)
    """Emitted with the current HostList."""

    _arrived = Signal(str, object)
    _linked = Signal(object)
    _lost = Signal(str, object)
    _hosts = Signal(object)

    def __init__(self, store: RunStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.link = LinkState()
        self._store = store
        self._waiting: dict[str, deque[Events]] = {}
        self._dirty: set[str] = set()
        self._emitted_at = 0.0
        self._slow_until = 0.0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._work)
        queued = Qt.ConnectionType.QueuedConnection
        self._arrived.connect(self._take, queued)
        self._linked.connect(self._take_link, queued)
        self._lost.connect(self.run_lost, queued)
        self._hosts.connect(self.hosts_changed, queued)

    def set_link(self, state: LinkState) -> None:
        """Set a connection state known to the window itself, such as "starting"."""
        self._take_link(state)

    # Called by the pump in its thread

    def receive_events(self, run_id: str, events: Events) -> None:
        self._arrived.emit(run_id, events)

    def receive_link(self, state: LinkState) -> None:
        self._linked.emit(state)

    def receive_loss(self, run_id: str, problem: Problem) -> None:
        """Forward from the event pump's thread to the window's that the events of a run cannot be
        streamed; `problem` has the reason."""
        self._lost.emit(run_id, problem)

    def receive_hosts(self, found: HostList) -> None:
        """Forward a newer list of servers from the event pump's thread to the window's."""
        self._hosts.emit(found)

    # In the GUI thread

    @Slot(str, object)
    def _take(self, run_id: str, events: Events) -> None:
        self._waiting.setdefault(run_id, deque()).append(events)
        if not self._timer.isActive():
            self._timer.start(0)

    @Slot(object)
    def _take_link(self, state: LinkState) -> None:
        self.link = state
        self.link_changed.emit(state)

    def _work(self) -> None:
        """Fold events for one slice, or emit changes if due. Never both in one turn of the event
        loop, since each blocks the window."""
        if self._dirty and self._until_emit_s() <= 0:
            self._emit_changes()
        else:
            end = time.perf_counter() + SLICE_S
            while self._waiting and time.perf_counter() < end:
                self._fold_some()
        if self._waiting:
            self._timer.start(1)
        elif self._dirty:
            self._timer.start(max(0, round(self._until_emit_s() * 1000)))

    def _until_emit_s(self) -> float:
        """Seconds until the next emission is due; negative if overdue."""
        now = time.monotonic()
        return self._emitted_at + (SLOW_EMIT_S if now < self._slow_until else EMIT_S) - now

    def _emit_changes(self) -> None:
        self._emitted_at = time.monotonic()
        dirty, self._dirty = self._dirty, set()
        for run_id in dirty:
            self.run_changed.emit(run_id)

    def _fold_some(self) -> None:
        run_id, batches = next(iter(self._waiting.items()))
        batch = batches.popleft()
        at_once = 1 if isinstance(batch[0], History) else AT_ONCE
        if len(batch) > at_once:
            batches.appendleft(batch[at_once:])
            batch = batch[:at_once]
        if not batches:
            del self._waiting[run_id]
        if isinstance(batch[0], History):
            self._slow_until = time.monotonic() + SLOW_FOR_S
        try:
            self._store.fold(run_id, batch)
        except SequenceGap as gap:
            log.warning("%s", gap)
            self._waiting.pop(run_id, None)
            self.gap_found.emit(run_id, self._store.state(run_id).seq)
        self._dirty.add(run_id)
