"""Parity verdict: every difference has its message; a missing measurement never passes."""

import pytest

from engine.export.parity import LIMITS, greedy_match, limits_for, logprob_gap, verdict_of
from engine.protocol.requests.exports import (
    FilesCheck,
    GreedyMatch,
    LogprobGap,
    Sameness,
    WeightsCheck,
)

GOOD_FILES = FilesCheck(files=3, bytes=100)
GOOD_WEIGHTS = WeightsCheck(tensors=2, adapted=1, numbers=10, outside=0)
SAME = Sameness(chat_template=True, tokenizer=True, stop_tokens=True, config=True)
GREEDY = GreedyMatch(prompts=4, same=3, ties=1)


def gap(*values: float) -> LogprobGap:
    return logprob_gap([[0.0] * len(values)], [list(values)])


def test_logprob_gaps_are_counted_and_nan_is_the_widest() -> None:
    result = logprob_gap([[-1.0, -2.0], [-3.0]], [[-1.0, -2.5], [float("nan")]])
    assert (result.sequences, result.tokens) == (2, 3)
    assert result.largest == 1000.0
    assert sum(result.histogram.counts) == 3
    assert result.histogram.counts[0] == result.histogram.counts[-1] == 1
    assert len(result.histogram.edges) == len(result.histogram.counts) + 1
    with pytest.raises(ValueError, match="no tokens"):
        logprob_gap([[]], [[]])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        logprob_gap([[1.0]], [[1.0, 2.0]])


def test_ties_are_no_difference_and_the_first_real_one_is_shown() -> None:
    top = [[(1, -0.1), (2, -0.1001)], [(5, -0.5), (6, -0.9)]]
    reference, exported = [[1, 5], [1, 5], [1, 5], [1, 5]], [[1, 5], [2, 9], [1, 6], [1]]
    result = greedy_match([[0]] * 4, reference, exported, [top] * 4, 0.01, str)
    assert (result.prompts, result.same, result.ties) == (4, 1, 1)
    assert result.first is not None
    assert (result.first.prompt, result.first.reference, result.first.exported) == (
        "[0]", "[1, 5]", "[1, 6]",
    )  # fmt: skip
    assert result.first.position == 1
    assert result.first.gap == pytest.approx(0.4)


def test_coarser_precision_sets_the_limits() -> None:
    assert limits_for("float32", "float32") == LIMITS["float32"]
    assert limits_for("float32", "bfloat16") == LIMITS["bfloat16"]
    assert limits_for("q8_0", "float32").verdict == "close"


def test_good_export_is_equal_or_close() -> None:
    for dtype, verdict in (("float32", "equal"), ("bfloat16", "equal"), ("q8_0", "close")):
        result = verdict_of(LIMITS[dtype], GOOD_FILES, GOOD_WEIGHTS, gap(1e-6), GREEDY, SAME)
        assert result == (verdict, [])


def test_converted_export_is_at_best_close() -> None:
    converted = GOOD_WEIGHTS.model_copy(update={"converted": True})
    result = verdict_of(LIMITS["float16"], GOOD_FILES, converted, gap(1e-6), GREEDY, SAME)
    assert result == ("close", [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"files": FilesCheck(files=3, bytes=1, wrong=["a"])},
            "changed after the export was written: a",
        ),
        ({"weights": GOOD_WEIGHTS.model_copy(update={"outside": 2, "first": "w"})}, "first in w"),
        ({"weights": GOOD_WEIGHTS.model_copy(update={"missing": ["w"]})}, "missing: w"),
        ({"weights": GOOD_WEIGHTS.model_copy(update={"unexpected": ["w"]})}, "unexpected: w"),
        ({"weights": None}, "could not be compared with"),
        ({"logprobs": gap(2e-4)}, "largest .* 0.0002 nats; 0.0001 are allowed"),
        ({"logprobs": None}, "could not be computed"),
        ({"greedy": GREEDY.model_copy(update={"ties": 0})}, "1 of 4 prompts"),
        ({"greedy": None}, "completed no prompt"),
        ({"same": SAME.model_copy(update={"chat_template": False})}, "chat template differs"),
        ({"same": SAME.model_copy(update={"stop_tokens": False})}, "stop tokens differ"),
        ({"same": None}, "configuration files could not"),
    ],
)
def test_each_difference_has_its_message(change: dict[str, object], words: str) -> None:
    import re

    facts = {
        "files": GOOD_FILES, "weights": GOOD_WEIGHTS, "logprobs": gap(1e-6), "greedy": GREEDY,
        "same": SAME, **change,
    }  # fmt: skip
    verdict, failures = verdict_of(LIMITS["float32"], **facts)  # type: ignore[arg-type]
    assert verdict == "differs"
    assert any(re.search(words, failure) for failure in failures), failures
