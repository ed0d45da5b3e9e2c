"""Replacement of lone surrogates; other text is unchanged."""

from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.text import replace_surrogates


@given(st.text())
def test_valid_text_is_unchanged(text: str) -> None:
    assert replace_surrogates(text) == text


def test_lone_surrogate_is_replaced() -> None:
    replaced = replace_surrogates({"a\ud83d": ["x\ude00y", 3, None, ("\ud800",)]})
    assert replaced == {"a�": ["x�y", 3, None, ["�"]]}
    assert replace_surrogates("\ud83d\ude00") == "😀", "a surrogate pair should be joined"
