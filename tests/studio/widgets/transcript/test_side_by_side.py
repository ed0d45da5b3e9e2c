"""Side-by-side comparison: differences are marked, bounded, and laid out when visible."""

import itertools
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from studio.text.word_diff import differing
from studio.widgets.transcript.side_by_side import PairRow, Side, SideBySide


def without(text: str, ranges: list[tuple[int, int]]) -> str:
    for start, end in reversed(ranges):
        text = text[:start] + text[end:]
    return text


@given(st.text("ab \n", max_size=60), st.text("ab \n", max_size=60))
@settings(max_examples=300, deadline=None)
def test_unmarked_text_is_equal_on_both_sides(left: str, right: str) -> None:
    first, second = differing(left, right)
    assert without(left, first) == without(right, second)
    for text, ranges in ((left, first), (right, second)):
        assert all(0 <= a < b <= len(text) for a, b in ranges)
        assert all(one[1] < two[0] for one, two in itertools.pairwise(ranges))
    if left == right:
        assert not first
        assert not second


def test_whole_words_are_marked() -> None:
    left, right = differing("arrives at 14:35 local", "arrives at 15:10 local")
    assert left == [(11, 16)]
    assert right == [(11, 16)]
    assert differing("moved", "mover") == ([(0, 5)], [(0, 5)])


def test_long_texts_are_compared_within_2_seconds() -> None:
    started_at = time.perf_counter()
    differing("a " * 200_000 + "x", "a " * 200_000 + "y")
    differing("ab" * 5000 + "\n" * 5000, "ba" * 5000 + "\n" * 4000)
    differing("x y " * 1400, "y x " * 1400)
    assert time.perf_counter() - started_at < 2


def test_rows_are_laid_out_when_visible_and_differences_navigated(qtbot: QtBot) -> None:
    view = SideBySide()
    qtbot.addWidget(view)
    view.resize(900, 500)
    rows = [
        PairRow(Side(f"Turn {n}", "same words"), Side(f"Turn {n}", "same words"))
        for n in range(500)
    ]
    rows[400] = PairRow(Side("Turn 401", "one word\n" * 90), Side("Turn 401", "another word"))
    rows[450] = PairRow(None, Side("Turn 451", "alone"))
    view.set_rows(rows)
    view.show()
    qtbot.wait(30)
    assert 0 < view.laid_out_count() < 40
    assert view.next_difference(1) == 400
    assert view._laid[400].left_out > 0
    assert view.next_difference(1) == 450
    assert view.next_difference(1) == 400
    assert view.next_difference(-1) == 450
    assert view.accessibleName() == "Comparison, 2 differences"
