"""Export of the starter model with a random adapter: real sizes, tokenizer and limits."""

from pathlib import Path

import pytest

from engine.export.parity import LIMITS, greedy_match, logprob_gap
from engine.export.torch.logprobs import (
    Computing,
    LogProbs,
    Passage,
    greedy_continuations,
    load_exported,
    load_trained,
)
from engine.export.torch.merge import BaseWeights, read_adapter
from engine.export.torch.vocabulary import read_vocabulary
from engine.models.registry import find_model
from tests.bench.gguf import SCALE, prompts
from tests.engine.export.make_run import save_adapter
from tests.engine.export.test_torch import QUIET, write

CPU = Computing(device="cpu", dtype="float32")
ANSWER = "It is wide and slow, and it reaches the sea after a long way."
PROMPTS = 2
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def base() -> Path:
    return find_model("smollm2-135m-instruct")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("starter") / "adapter"
    save_adapter(base, folder, SCALE)
    return folder


@pytest.fixture(scope="module")
def passages(base: Path) -> list[Passage]:
    exported, chat = prompts(base, PROMPTS)
    answer_tokens = chat.encode(ANSWER)
    return [Passage(tokens=one.tokens + answer_tokens, prompt=one.prompt) for one in exported]


@pytest.fixture(scope="module")
def trained(base: Path, adapter: Path, passages: list[Passage]) -> LogProbs:
    return greedy_continuations(load_trained(base, adapter, CPU), passages, [2], 4, QUIET)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("merged", "float32"), ("merged", "bfloat16"), ("gguf", "float16")]
)
def test_export_is_within_the_limits(
    base: Path,
    adapter: Path,
    passages: list[Passage],
    trained: LogProbs,
    tmp_path: Path,
    kind: str,
    dtype: str,
) -> None:
    factors = read_adapter(adapter, BaseWeights(base))
    out = write(base, factors, tmp_path / "out", kind, dtype, 300_000_000)
    exported = greedy_continuations(load_exported(out, kind, base, CPU), passages, [2], 4, QUIET)
    gap, limits = logprob_gap(trained.logprobs, exported.logprobs), LIMITS[dtype]
    assert gap.mean <= limits.mean
    assert gap.p99 <= limits.p99
    assert limits.largest is None or gap.largest <= limits.largest
    match = greedy_match(
        [one.tokens for one in passages],
        trained.greedy,
        exported.greedy,
        trained.top,
        limits.tie,
        str,
    )
    assert match.same + match.ties == PROMPTS


def test_vocabulary_rule_of_the_starter_is_smollm(base: Path) -> None:
    assert read_vocabulary(base, 49152).rule == "smollm"
