"""Word diff: ranges in which two texts differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.text.word_diff import LINES_MOST, WORDS_MOST, differing


def differing_words(left: str, right: str) -> tuple[list[str], list[str]]:
    """Return the differing parts of each text."""
    ours, theirs = differing(left, right)
    return [left[a:b] for a, b in ours], [right[a:b] for a, b in theirs]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        pytest.param("", "", ([], []), id="empty"),
        pytest.param("the same text", "the same text", ([], []), id="equal"),
        pytest.param("all", "", (["all"], []), id="nothing on the right"),
        pytest.param("", "all", ([], ["all"]), id="nothing on the left"),
        pytest.param("one two", "three", (["one two"], ["three"]), id="nothing in common"),
        pytest.param("a cat sat", "a dog sat", (["cat"], ["dog"]), id="in the middle"),
        pytest.param("cat sat", "dog sat", (["cat"], ["dog"]), id="at the beginning"),
        pytest.param("a cat", "a dog", (["cat"], ["dog"]), id="at the end"),
        pytest.param("a\ncat", "a\ndog", (["cat"], ["dog"]), id="in the last line"),
        pytest.param("walking on", "walked on", (["walking"], ["walked"]), id="whole words"),
        pytest.param("rewalk it", "unwalk it", (["rewalk"], ["unwalk"]), id="common end"),
        pytest.param("1.25 or so", "1.75 or so", (["1.25"], ["1.75"]), id="decimals"),
        pytest.param("at 10:30", "at 10:45", (["10:30"], ["10:45"]), id="times"),
        pytest.param("me@a.org!", "us@a.org!", (["me@a.org"], ["us@a.org"]), id="addresses"),
        pytest.param("is it (no)?", "is it (yes)?", (["no"], ["yes"]), id="punctuation stays"),
        pytest.param("a b", "a x b", ([], [" x"]), id="an added word"),
        pytest.param("a  b", "a b", ([" "], []), id="spaces"),
    ],
)
def test_differing_words(left: str, right: str, expected: tuple[list[str], list[str]]) -> None:
    assert differing_words(left, right) == expected


def test_separate_differences_have_separate_ranges() -> None:
    assert differing_words("a cat sat on a mat ok", "a dog sat on a rug ok") == (
        ["cat", "mat"],
        ["dog", "rug"],
    )


def test_adjacent_differences_share_one_range() -> None:
    assert differing("x one two y", "x three y") == ([(2, 9)], [(2, 7)])


@pytest.mark.parametrize(
    ("count", "apart"), [(WORDS_MOST - 3, True), (WORDS_MOST - 2, False)], ids=["words", "lines"]
)
def test_long_texts_are_compared_by_lines(count: int, apart: bool) -> None:
    words = [str(n) if n % 2 else " " for n in range(count)]
    left, right = ("".join([side, *words, "!", mark]) for side, mark in (("L", "?"), ("R", ".")))
    assert left != right
    length = len(left)
    expected = [(0, 1), (length - 1, length)] if apart else [(0, length)]
    assert differing(left, right) == (expected, expected)


@pytest.mark.parametrize(
    ("count", "apart"), [(LINES_MOST - 2, True), (LINES_MOST - 1, False)], ids=["lines", "whole"]
)
def test_texts_over_line_limit_differ_as_a_whole(count: int, apart: bool) -> None:
    lines = [f"line {n}\n" for n in range(count)]
    left, right = (
        "".join(["same ", side, "\n", *lines, mark]) for side, mark in (("L", "?"), ("R", "."))
    )
    length = len(left)
    expected = [(4, 7), (length - 1, length)] if apart else [(4, length)]
    assert differing(left, right) == (expected, expected)


def test_long_text_differs_entirely_from_empty_text() -> None:
    long = "a\n" * (LINES_MOST + 1)
    assert differing(long, "") == ([(0, len(long))], [])
    assert differing("", long) == ([], [(0, len(long))])


texts = st.lists(st.sampled_from(["a", "b", "cat", " ", "\n", ".", "1.5"])).map("".join)


@given(texts, texts)
def test_texts_are_equal_outside_of_differing_ranges(left: str, right: str) -> None:
    unmarked = []
    for text, ranges in zip((left, right), differing(left, right), strict=True):
        places = [place for one in ranges for place in one]
        assert places == sorted(set(places)), "ranges are disjoint, ordered and not empty"
        assert not places or (places[0] >= 0 and places[-1] <= len(text))
        starts, ends = [0, *places[1::2]], [*places[::2], len(text)]
        unmarked.append("".join(text[a:b] for a, b in zip(starts, ends, strict=True)))
    assert unmarked[0] == unmarked[1]
