"""What can be stored is kept to the letter; what cannot becomes the sign for it."""

from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.text import replace_surrogates


@given(st.text())
def test_whole_text_stays_as_it_is(text: str) -> None:
    assert replace_surrogates(text) == text


def test_half_a_pair_becomes_the_replacement_character() -> None:
    found = replace_surrogates({"a\ud83d": ["x\ude00y", 3, None, ("\ud800",)]})
    assert found == {"a�": ["x�y", 3, None, ["�"]]}
    assert replace_surrogates("\ud83d\ude00") == "😀", "two halves are one"
