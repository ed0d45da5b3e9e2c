"""Text and status dot of a server in each state."""

import pytest

from engine.protocol.problems import Problem
from engine.protocol.requests.remote import HostList, HostTick
from studio.store.servers.servers import (
    HostStore,
    amount_words,
    share_of,
    start_words,
    tick_words,
    words_of,
)
from tests.studio.fakes.servers import (
    HOST_KEY,
    KEY_CHANGED,
    NOT_INSTALLED,
    OTHER_HOME,
    PASSPHRASE,
    UNREACHABLE,
    view,
)

NOW = 1_790_000_000.0
WHEELS = HostTick(stage="uploading", words="torch 2.13.0", done=210_000_000, total=526_000_000)


@pytest.mark.parametrize(
    ("shown", "text", "dot"),
    [
        (view(), "not connected", "none"),
        (view(state="connecting"), "connecting", "connecting"),
        (view(state="starting"), "starting engine", "connecting"),
        (view(state="installing"), "installing", "connecting"),
        (
            view(state="installing", tick=WHEELS),
            "uploading torch 2.13.0 · 210 of 526 MB",
            "connecting",
        ),
        (view(state="asking", questions=[HOST_KEY]), "asks to verify its host key", "asking"),
        (view(state="asking", questions=[PASSPHRASE]), "asks for a passphrase", "asking"),
        (view(state="connected"), "connected · latency 12 ms", "connected"),
        (
            view(state="connected", behind=12_400),
            "connected · 12,400 events not mirrored",
            "connected",
        ),
        (
            view(state="reconnecting", failures=2, retry_at=NOW + 8, problem=UNREACHABLE),
            "reconnecting (3rd attempt in 8 s): the server is unreachable",
            "reconnecting",
        ),
        (
            view(state="reconnecting", failures=1, retry_at=NOW - 1, problem=UNREACHABLE),
            "reconnecting (2nd attempt now): the server is unreachable",
            "reconnecting",
        ),
        (view(state="stopped", problem=KEY_CHANGED), "host key changed", "gone"),
        (view(state="stopped", problem=OTHER_HOME), "in use by another machine", "gone"),
        (view(state="stopped", problem=NOT_INSTALLED), "no engine installed", "none"),
        (
            view(state="stopped", problem=Problem(code="ssh.new", message="It is odd.")),
            "It is odd",
            "gone",
        ),
    ],
)
def test_every_server_state_has_text_and_dot(shown, text: str, dot: str) -> None:  # type: ignore[no-untyped-def]
    words = words_of(shown, NOW)
    assert (words.text, words.dot) == (text, dot)
    assert words.short


def test_amounts_share_one_unit() -> None:
    assert amount_words(300_000_000, 4_200_000_000) == "0.3 of 4.2 GB"
    assert amount_words(12_000, 84_000) == "12 of 84 kB"
    assert tick_words(HostTick(stage="installing", words="numpy", done=3, total=228)) == (
        "Installing numpy · 3 of 228"
    )
    assert tick_words(HostTick(stage="removing", words="Atelier's files")) == (
        "Removing Atelier's files"
    )
    assert share_of(WHEELS) == pytest.approx(210 / 526)
    assert share_of(HostTick(stage="surveying", words="")) is None


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (None, "Connecting to box"),
        (view(state="reconnecting"), "Connecting to box"),
        (view(state="asking", questions=[PASSPHRASE]), "box asks for a passphrase"),
        (view(state="starting"), "box is starting engine"),
        (view(state="connected"), "Starting on box"),
        (
            view(state="connected", tick=WHEELS.model_copy(update={"stage": "syncing"})),
            "Syncing 210 of 526 MB",
        ),
    ],
)
def test_start_words_name_what_is_waited_for(shown, words: str) -> None:  # type: ignore[no-untyped-def]
    assert start_words(shown, "box") == words


def test_store_tracks_since_when_a_server_is_away() -> None:
    store = HostStore()
    for revision, (at, state) in enumerate(
        ((10.0, "reconnecting"), (20.0, "connected"), (30.0, "reconnecting"), (40.0, "stopped")), 1
    ):
        store.take(HostList(revision=revision, hosts=[view(state=state)]), at)
        if state == "connected" or at == 10.0:
            assert store.away_since("box") is None
    assert store.away_since("box") == 30.0
    assert not store.counts_down
    asking = view("lab", "asking", questions=[HOST_KEY, PASSPHRASE])
    store.take(HostList(revision=9, hosts=[asking]), 50.0)
    assert [one.kind for _, one in store.questions()] == ["host_key", "passphrase"]
    assert store.view("box") is None
