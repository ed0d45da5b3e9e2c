"""Parsing of untrusted JSON: every defect is a ValueError with a message."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.json_text import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(VALUES)
def test_json_round_trip_is_lossless(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == value
    assert parse_json("\ufeff" + text) == value
    assert parse_json(b"\xef\xbb\xbf" + text.encode()) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", "NaN is not a number in JSON"),
        ("[-Infinity]", "-Infinity is not a number in JSON"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        (f"0.{'1' * 30}e999", "the number 0.111111111111111111 is too large"),
        ('{"a": 1, "b": 1, "b": 2}', "the key 'b' occurs twice"),
        (f'{{"{"k" * 50}": 1, "{"k" * 50}": 2}}', f"the key '{'k' * 40}' occurs twice"),
        ('[{"a": [1e999]}]', "too large"),
        ("[" * 100_000, "^it is nested too deeply$"),
        ('{"a":' * 100_000, "too deeply"),
        (b"\xff\xfe", "decode"),
        ("", "Expecting"),
        ("1" * 5000, "digits"),
    ],
)
def test_invalid_json_raises_value_error(text: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_json(text)


@given(st.text() | st.binary())
def test_arbitrary_input_raises_only_value_error(text: str | bytes) -> None:
    try:
        parse_json(text)
    except ValueError:
        return


def test_unique_false_keeps_the_last_of_equal_keys() -> None:
    assert parse_json('{"a": 1, "a": 2}', unique=False) == {"a": 2}
    for text in ("NaN", "1e999"):
        with pytest.raises(ValueError, match="number"):
            parse_json(text, unique=False)
