"""Changes of servers reach the studio, whatever becomes of the engine that tells them."""

from collections.abc import Iterator

import pytest

from studio.link.event_pump import EventPump
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.servers import view
from tests.studio.link.test_event_pump import Ears, wait


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def pump(engine: FakeEngine, ears: Ears) -> Iterator[EventPump]:
    pump = EventPump(engine.find, ears)
    pump.start()
    yield pump
    pump.stop()


def test_a_change_is_heard_at_once_and_silence_costs_nothing(
    engine: FakeEngine, ears: Ears, pump: EventPump
) -> None:
    wait(lambda: ears.hosts)
    engine.servers.put(view())
    wait(lambda: ears.hosts[-1].hosts)
    engine.servers.change("box", state="connecting")
    wait(lambda: ears.hosts[-1].hosts[0].state == "connecting")
    polls = engine.servers.polls
    assert polls < 8
    for done in range(200):  # progress comes as it can be read, not as fast as it is told
        engine.servers.change("box", failures=done)
    wait(lambda: ears.hosts[-1].hosts[0].failures == 199)
    assert engine.servers.polls < polls + 8


def test_another_engine_counts_from_the_beginning(
    engine: FakeEngine, ears: Ears, pump: EventPump
) -> None:
    for name in ("a", "b", "c"):
        engine.servers.put(view(name))
    wait(lambda: ears.hosts and len(ears.hosts[-1].hosts) == 3)
    engine.stop()
    wait(lambda: ears.states and ears.states[-1].contact == "reconnecting")
    engine.servers.views = {"box": view()}
    engine.servers.revision = 2
    engine.start()
    wait(lambda: [one.spec.name for one in ears.hosts[-1].hosts] == ["box"])
