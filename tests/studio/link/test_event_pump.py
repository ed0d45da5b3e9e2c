"""Event pump: events arrive once and in order, even when streams break."""

import time
from collections.abc import Iterator

import pytest

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostList
from studio.link.backoff import Backoff
from studio.link.engine_state import LinkState
from studio.link.event_pump import EventPump
from studio.link.follower import Events
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.simulated_run import SMALL, Simulation

RUN = "01JD5MAMBERKESTREL00000000"


class Receiver:
    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.batches: list[tuple[float, int]] = []
        self.states: list[LinkState] = []
        self.lost: list[Problem] = []
        self.hosts: list[HostList] = []

    def receive_events(self, run_id: str, events: Events) -> None:
        self.batches.append((time.monotonic(), len(events)))
        self.seqs += [event.seq for event in events if event.seq is not None]

    def receive_link(self, state: LinkState) -> None:
        self.states.append(state)

    def receive_loss(self, run_id: str, problem: Problem) -> None:
        self.lost.append(problem)

    def receive_hosts(self, found: HostList) -> None:
        self.hosts.append(found)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def pump(engine: FakeEngine, receiver: Receiver) -> Iterator[EventPump]:
    run = Simulation(run_id=RUN, train=SMALL)
    run.begin()
    for step in range(1, 6):
        run.step(step)
    engine.add_run(run.made)
    pump = EventPump(engine.find, receiver)
    pump.start()
    yield pump
    pump.stop()


def wait(check: object, seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not check():  # type: ignore[operator]
        assert time.monotonic() < end, "timeout"
        time.sleep(0.01)


def test_replay_is_followed_by_live_events(
    engine: FakeEngine, receiver: Receiver, pump: EventPump
) -> None:
    total = len(engine.runs[RUN].events)
    pump.follow(RUN)
    wait(lambda: len(receiver.seqs) == total)
    simulation = Simulation(train=SMALL)
    simulation.made = engine.runs[RUN]
    simulation.step(6)
    wait(lambda: len(receiver.seqs) == len(engine.runs[RUN].events))
    assert receiver.seqs == list(range(1, len(receiver.seqs) + 1))
    assert receiver.states[-1].contact == "connected"


def test_follow_starts_after_given_sequence_number(receiver: Receiver, pump: EventPump) -> None:
    pump.follow(RUN, after=100)
    wait(lambda: receiver.seqs)
    assert receiver.seqs[0] == 101


@pytest.mark.parametrize("fault", ["drop", "gap"])
def test_broken_stream_loses_and_repeats_no_event(
    engine: FakeEngine, receiver: Receiver, pump: EventPump, fault: str
) -> None:
    if fault == "drop":
        engine.drop_streams_after = 1
    else:
        engine.skip_seq = 50
    pump.follow(RUN)
    total = len(engine.runs[RUN].events)
    wait(lambda: len(receiver.seqs) == total, 30)
    assert receiver.seqs == list(range(1, total + 1))
    assert engine.streams > (fault == "gap")


def test_client_reconnects_after_engine_restart(
    engine: FakeEngine, receiver: Receiver, pump: EventPump
) -> None:
    pump.follow(RUN)
    total = len(engine.runs[RUN].events)
    wait(lambda: len(receiver.seqs) == total)
    engine.stop()
    wait(lambda: receiver.states[-1].contact == "reconnecting")
    assert "reconnecting in" in receiver.states[-1].words
    simulation = Simulation(train=SMALL)
    simulation.made = engine.runs[RUN]
    simulation.step(6)
    engine.start()
    wait(lambda: len(receiver.seqs) == len(engine.runs[RUN].events))
    assert receiver.seqs == list(range(1, len(receiver.seqs) + 1))
    wait(lambda: receiver.states[-1].contact == "connected")


def test_missing_run_is_reported_as_lost(receiver: Receiver, pump: EventPump) -> None:
    pump.follow("nothing")
    wait(lambda: receiver.lost)
    assert receiver.lost[0].code == "run.missing"


def test_batches_are_limited_to_30_per_second(
    engine: FakeEngine, receiver: Receiver, pump: EventPump
) -> None:
    pump.follow(RUN)
    flood = engine.flood(RUN, 1000, 1.5)
    flood.join()
    wait(lambda: receiver.seqs and receiver.seqs[-1] == len(engine.runs[RUN].events))
    times = [at for at, _ in receiver.batches]
    per_s = len(times) / (times[-1] - times[0])
    assert per_s <= 31, per_s
    assert receiver.seqs == list(range(1, len(receiver.seqs) + 1))


def test_back_off_is_bounded() -> None:
    backoff = Backoff()
    assert [backoff.failed() for _ in range(6)] == [0.5, 1, 2, 4, 5, 5]
    backoff.worked()
    assert backoff.failed() == 0.5


def test_stop_returns_quickly_right_after_start(engine: FakeEngine) -> None:
    for _ in range(5):
        pump = EventPump(engine.find, Receiver())
        pump.start()
        time.sleep(0.05)
        pump.nudge()
        started_at = time.monotonic()
        pump.stop()
        assert time.monotonic() - started_at < 2
