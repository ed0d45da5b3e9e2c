"""Rubric text: criteria, weights, differences."""

from hypothesis import given
from hypothesis import strategies as st

from studio.store.projects.rubric import (
    Part,
    changed_lines,
    diff,
    moved,
    parts_of,
    shares,
    with_parts,
)

SOURCE = "---\ncriteria:\n- {name: Right, weight: 3, words: It is.}\n- name: Brief\n---\n\nText.\n"


def test_criteria_are_parsed_and_written_back() -> None:
    parts = parts_of(SOURCE)
    assert parts == [Part("Right", 3.0, "It is."), Part("Brief", 1.0)]
    assert shares(parts) == [0.75, 0.25]
    again = with_parts(SOURCE, parts)
    assert parts_of(again) == parts
    assert again.endswith("\nText.\n")
    assert parts_of(with_parts("Only words.", parts)) == parts
    assert with_parts(SOURCE, []) == "Text.\n"


def test_invalid_front_matter_is_none_and_missing_is_empty() -> None:
    assert parts_of("Words.") == []
    assert parts_of("---\ncriteria:\n- {name") is None
    assert parts_of("---\ncriteria: 3\n---\n") is None
    assert parts_of("---\ncriteria:\n- {name: a, weight: -1}\n---\n") is None


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=6), st.data(), st.floats(0, 1))
def test_moved_boundary_changes_neighbouring_weights_only(weights, data, share):  # type: ignore[no-untyped-def]
    parts = [Part(str(n), weight) for n, weight in enumerate(weights)]
    boundary = data.draw(st.integers(0, len(parts) - 2))
    before, after = shares(parts), shares(moved(parts, boundary, share))
    assert all(value > 0 for value in after)
    assert abs(sum(after) - 1) < 1e-9
    for place, (was, now) in enumerate(zip(before, after, strict=True)):
        if place not in (boundary, boundary + 1):
            assert abs(was - now) < 0.02


def test_changed_lines_and_diff() -> None:
    before, now = "a\nb\nc", "a\nB\nc\nd"
    assert changed_lines(before, now) == {1, 3}
    assert diff(before, now) == [(" ", "a"), ("-", "b"), ("+", "B"), (" ", "c"), ("+", "d")]
