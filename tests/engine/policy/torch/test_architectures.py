"""Every supported model type: sampler, trainer and gradients equal plain transformers and PEFT."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.architectures import UNSUPPORTED, architecture_problem, causal_types
from engine.policy.base import SampleRequest, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import AloneSampler, Sampler
from tests.engine.policy.architectures import ROWS, TREES
from tests.engine.policy.exactness import assert_exact, loaded, saved_model

PROMPT_TOKENS, SAMPLED_TOKENS, SIBLINGS = 18, 6, 3


def sampled_group(model: LoraModel) -> list[TrainItem]:
    """Siblings of two prompts, of which the second extends the first."""
    prompts = [[3 + 7 * n * n % 250 for n in range(length)] for length in (PROMPT_TOKENS, 25)]
    rows: dict[int, list[Any]] = {number: [] for number in range(2 * SIBLINGS)}
    kind = Sampler if model.shares_prefixes else AloneSampler
    sampler = kind(model, [], lambda number, token, end: rows[number].append(token))
    for number in rows:
        prompt = prompts[number // SIBLINGS]
        count = SAMPLED_TOKENS + number
        sampler.add(number, SampleRequest(tokens=prompt, max_tokens=count, seed=number))
    while sampler.busy:
        sampler.step()
    items = []
    for number, tokens in rows.items():
        prompt = prompts[number // SIBLINGS]
        items.append(
            TrainItem(
                tokens=prompt + [one.token for one in tokens],
                spans=[(len(prompt), len(prompt) + len(tokens))],
                logprobs=[one.logprob for one in tokens],
                advantages=[(-1.0) ** number * (1 + number / 4)] * len(tokens),
            )
        )
    return items


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # gpt_bigcode
@pytest.mark.parametrize("kind", [*TREES, *ROWS])
def test_sampler_and_gradients_equal_transformers(kind: str, tmp_path: Path) -> None:
    folder = saved_model(kind, TREES.get(kind, ROWS.get(kind, {})), tmp_path / "model")
    assert architecture_problem(AutoConfig.from_pretrained(folder).to_dict(), kind) is None
    model = loaded(folder)
    assert model.shares_prefixes == (kind in TREES)
    assert model.publish_gap() <= 1e-4
    base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    assert_exact(kind, model, base, sampled_group(model), tmp_path / "adapter")


def test_unsupported_types_are_refused_by_their_config() -> None:
    for reason, kinds in UNSUPPORTED.items():
        for kind in kinds:
            assert kind in causal_types(), kind
            problem = architecture_problem({"model_type": kind}, "org/model")
            assert problem is not None
            assert (
                problem.message == f"org/model {reason}, which the torch trainer does not support."
            )
