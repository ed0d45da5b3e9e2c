"""Server watcher: changes of servers reach the studio, also after an engine restart."""

from collections.abc import Iterator

import pytest

from studio.link.event_pump import EventPump
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import view
from tests.studio.link.test_event_pump import Receiver, wait


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def pump(engine: FakeEngine, receiver: Receiver) -> Iterator[EventPump]:
    pump = EventPump(engine.find, receiver)
    pump.start()
    yield pump
    pump.stop()


def test_server_change_is_received_with_few_polls(
    engine: FakeEngine, receiver: Receiver, pump: EventPump
) -> None:
    wait(lambda: receiver.hosts)
    engine.servers.put(view())
    wait(lambda: receiver.hosts[-1].hosts)
    engine.servers.change("box", state="connecting")
    wait(lambda: receiver.hosts[-1].hosts[0].state == "connecting")
    polls = engine.servers.polls
    assert polls < 8
    for done in range(200):  # progress arrives at a readable rate, not as fast as it is reported
        engine.servers.change("box", failures=done)
    wait(lambda: receiver.hosts[-1].hosts[0].failures == 199)
    assert engine.servers.polls < polls + 8


def test_new_engine_restarts_revision_numbers(
    engine: FakeEngine, receiver: Receiver, pump: EventPump
) -> None:
    for name in ("a", "b", "c"):
        engine.servers.put(view(name))
    wait(lambda: receiver.hosts and len(receiver.hosts[-1].hosts) == 3)
    engine.stop()
    wait(lambda: receiver.states and receiver.states[-1].contact == "reconnecting")
    engine.servers.views = {"box": view()}
    engine.servers.revision = 2
    engine.start()
    wait(lambda: [one.spec.name for one in receiver.hosts[-1].hosts] == ["box"])
