"""Arena votes → pairwise preference counts."""

import pytest

from engine.evaluation.arena import duels, wilson
from engine.protocol.records.labels import Label, Word

NAMES = {"a": "base", "b": "tuned", "c": "tuned", "d": "other"}


def vote(*order: tuple[str, ...], undone: int | None = None) -> Label:
    word = Word(kind="order", order=order)
    return Label(id=f"{order}{undone}", split="validation", step=1, group=0, words=[word],
                 undone=undone)  # fmt: skip


def test_votes_are_counted_once_per_pair() -> None:
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
    result = {(one.name, one.against): one for one in duels(votes, NAMES)}
    pair = result["base", "tuned"]
    assert (pair.wins, pair.ties, pair.losses) == (1, 2, 2)
    assert pair.share.mean == pytest.approx(0.4)
    assert (result["base", "other"].wins, result["base", "other"].losses) == (0, 1)
    assert (result["other", "tuned"].wins, result["other", "tuned"].losses) == (1, 0)
    assert len(result) == 3


def test_wilson_interval_matches_published_values() -> None:
    """Newcombe (1998, 10.1002/(SICI)1097-0258), table I: 81 of 263, and 0 of 20."""
    result = wilson(81, 263)
    assert (result.low, result.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    result = wilson(0, 20)
    assert (result.low, result.high) == pytest.approx((0.0, 0.1611), abs=5e-5)
