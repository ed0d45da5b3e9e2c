"""Encoding of events: round trip, and tolerance of unknown kinds and fields."""

import pytest
from pydantic import ValidationError

from engine.protocol.events.run import (
    Event,
    LogWritten,
    ProgressTicked,
    StepFinished,
    UnknownEvent,
    decode,
    encode,
)


def test_event_survives_encoding() -> None:
    event = StepFinished(run_id="r", seq=7, at=1.5, step=3, metrics={"reward/mean": 0.5})
    assert decode(encode(event)) == event


def test_tick_keeps_its_groups() -> None:
    tick = ProgressTicked(step=1, phase="rolling_out", done=1, total=2, in_flight={0: (1, 4)})
    assert decode(encode(tick)) == tick


def test_unknown_kind_keeps_its_seq() -> None:
    event = decode('{"kind": "moon.risen", "seq": 9, "run_id": "r", "colour": "white"}')
    assert isinstance(event, UnknownEvent)
    assert event.seq == 9


def test_unknown_fields_are_ignored() -> None:
    line = '{"kind": "log.written", "level": "info", "source": "s", "text": "t", "new": 1}'
    assert decode(line) == LogWritten(level="info", source="s", text="t")


def test_invalid_event_of_known_kind_raises_validation_error() -> None:
    with pytest.raises(ValidationError):
        decode('{"kind": "log.written", "level": "loud"}')


def test_event_kinds_are_noun_and_past_participle() -> None:
    for member in Event.__args__:  # type: ignore[attr-defined]
        noun, _, verb = member.model_fields["kind"].default.partition(".")
        assert noun.isalpha()
        assert verb.isalpha()
        assert member.__name__.lower() == noun + verb
