"""Continuous batching: tokens equal the plain model's, alone and in any batch."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.policy.base import SampledToken, SampleRequest
from engine.policy.prefix import shared
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.kv_cache import KeyValueCache
from engine.policy.torch.sampling.sampler import Sampler
from tests.engine.policy.conftest import load


def run(sampler: Sampler) -> None:
    while sampler.busy:
        sampler.step()


def sampler_of(model: LoraModel) -> tuple[Sampler, dict[int, list[SampledToken]]]:
    sampled: dict[int, list[SampledToken]] = {}
    sampler = Sampler(
        model, [], lambda number, token, _: sampled.setdefault(number, []).append(token)
    )
    return sampler, sampled


def greedy(tokens: list[int], count: int) -> SampleRequest:
    return SampleRequest(tokens=tokens, max_tokens=count, seed=0, temperature=0)


def test_tokens_and_logprobs_equal_the_plain_model(folder: Path) -> None:
    """Prompts of several lengths, some shared, joining at different steps; windows are exceeded."""
    torch.manual_seed(1)
    prompts = [torch.randint(97, (length,)).tolist() for length in (3, 9, 30, 30, 45)]
    prompts += [prompts[2], [*prompts[4][:40], 1, 2, 3]]
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    sampler, sampled = sampler_of(load(folder))
    for number, prompt in enumerate(prompts):
        sampler.add(number, greedy(prompt, 12 + number))
        sampler.step()
    run(sampler)
    for number, prompt in enumerate(prompts):
        tokens = [token.token for token in sampled[number]]
        with torch.no_grad():
            logits = plain(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :]
        logprobs = logits[:-1].log_softmax(-1)
        for position, token in enumerate(sampled[number]):
            assert logprobs[position].max() - logprobs[position, token.token] <= 1e-5
            assert logprobs[position, token.token].item() == pytest.approx(token.logprob, abs=1e-4)


def test_second_turn_computes_only_new_tokens(tiny_model: Path) -> None:
    model = load(tiny_model)
    sampler, sampled = sampler_of(model)
    first = list(range(3, 60))
    sampler.add(0, greedy(first, 10))
    run(sampler)
    assert sampler.computed_tokens == len(first)
    second = first + [token.token for token in sampled[0]] + [7, 8, 9]
    sampler.add(1, greedy(second, 10))
    run(sampler)
    assert sampler.computed_tokens == len(first) + 4  # the last sampled token and three new ones
    fresh, fresh_sampled = sampler_of(model)
    fresh.add(1, greedy(second, 10))
    run(fresh)
    assert [t.token for t in fresh_sampled[1]] == [t.token for t in sampled[1]]
    assert [t.logprob for t in fresh_sampled[1]] == pytest.approx(
        [t.logprob for t in sampled[1]], abs=1e-5
    )


def test_group_computes_its_prompt_once(tiny_model: Path) -> None:
    sampler, sampled = sampler_of(load(tiny_model))
    prompt = list(range(3, 103))
    for number in range(8):
        sampler.add(number, SampleRequest(tokens=prompt, max_tokens=5, seed=number))
    run(sampler)
    assert sampler.computed_tokens == 100 + 7
    assert len({tuple(t.token for t in tokens) for tokens in sampled.values()}) > 1


def test_forget_discards_the_cache_of_old_weights(tiny_model: Path) -> None:
    model = load(tiny_model)
    sampler, sampled = sampler_of(model)
    prompt = list(range(3, 60))
    sampler.add(0, greedy(prompt, 6))
    run(sampler)
    with torch.no_grad():
        for parameter in model.adapter.values():
            parameter.add_(0.3 * torch.randn_like(parameter))
    sampler.forget()
    sampler.add(1, greedy(prompt, 6))
    run(sampler)
    fresh, fresh_sampled = sampler_of(model)
    fresh.add(1, greedy(prompt, 6))
    run(fresh)
    assert [t.logprob for t in fresh_sampled[1]] == [t.logprob for t in sampled[1]]
    assert [t.logprob for t in sampled[0]] != [t.logprob for t in sampled[1]]


def test_sampler_handles_more_requests_than_rows_and_cancellation(tiny_model: Path) -> None:
    sampler, sampled = sampler_of(load(tiny_model))
    for number in range(150):
        sampler.add(number, SampleRequest(tokens=[5, 6, 7 + number], max_tokens=4, seed=number))
    sampler.step()
    sampler.cancel(0)
    sampler.cancel(149)
    run(sampler)
    assert len(sampled[0]) == 1
    assert 149 not in sampled
    assert all(len(sampled[number]) == 4 for number in range(1, 149))


def test_slots_respect_the_budget_and_the_oldest_is_reused() -> None:
    cache = KeyValueCache(most_slots=8, budget_tokens=3 * 128)
    first = cache.acquire(list(range(50)), 100)
    second = cache.acquire(list(range(100, 150)), 100)
    third = cache.acquire(list(range(200, 250)), 100)
    assert first
    assert second
    assert third
    assert cache.acquire([1, 2, 3], 100) is None
    for slot, _ in (second, first):
        cache.release(slot)
    slot_ = cache.acquire([1, 2, 3], 100)
    assert slot_ is not None
    assert slot_[0] is first[0]


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [([], [1], 0), ([1], [1], 1), ([1, 2, 3], [1, 2, 4], 2), ([2], [1], 0), ([1, 2], [1, 2, 3], 2)],
)
def test_shared_returns_the_common_prefix_length(
    one: list[int], other: list[int], length: int
) -> None:
    assert shared(one, other) == length
