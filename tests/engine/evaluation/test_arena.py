"""Votes → who is preferred."""

import pytest

from engine.evaluation.arena import duels, wilson
from engine.protocol.records.labels import Label, Word

NAMES = {"a": "base", "b": "tuned", "c": "tuned", "d": "other"}


def vote(*order: tuple[str, ...], undone: int | None = None) -> Label:
    word = Word(kind="order", order=order)
    return Label(id=f"{order}{undone}", split="validation", step=1, group=0, words=[word],
                 undone=undone)  # fmt: skip


def test_votes_count_once_a_pair() -> None:
    votes = [
        vote(("b",), ("a",)),
        vote(("b",), ("a",)),
        vote(("a",), ("b",)),
        vote(("a", "b")),
        vote(("a",), ("b",), undone=9),
        vote(("b",), ("c",)),
        vote(("d",), ("a", "b")),
        vote(("x",), ("a",)),
    ]
    found = {(one.name, one.against): one for one in duels(votes, NAMES)}
    pair = found["base", "tuned"]
    assert (pair.wins, pair.ties, pair.losses) == (1, 2, 2)
    assert pair.share.mean == pytest.approx(0.4)
    assert (found["base", "other"].wins, found["base", "other"].losses) == (0, 1)
    assert (found["other", "tuned"].wins, found["other", "tuned"].losses) == (1, 0)
    assert len(found) == 3


def test_wilson_against_published_values() -> None:
    """Newcombe (1998, 10.1002/(SICI)1097-0258), table I: 81 of 263, and 0 of 20."""
    found = wilson(81, 263)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    found = wilson(0, 20)
    assert (found.low, found.high) == pytest.approx((0.0, 0.1611), abs=5e-5)
