"""Policy process: peak rates measured by the first and reused by the next ones; grammars."""

import asyncio
from pathlib import Path

import pytest

from engine.policy import worker
from engine.policy.base import PolicyInfo, PolicySpec, SampleRequest, ScoreBatch
from engine.protocol.problems import RolloutError
from tests.engine.policy.test_data_parallel import spec
from tests.engine.policy.torch.grammars import item_of, regex
from tests.support.engine_starter import forked_policy


async def load(policy_spec: PolicySpec, log: Path) -> PolicyInfo:
    async with forked_policy(log) as policy:
        return await policy.load(policy_spec)


def test_peak_rates_are_measured_once(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "peak_rates", {})
    policy_spec, log = spec(tiny_model), tmp_path / "log"
    first, second = [asyncio.run(load(policy_spec, log)) for _ in range(2)]
    assert first.peak_flops > 0
    assert first.bandwidth > 0
    assert (second.peak_flops, second.bandwidth) == (first.peak_flops, first.bandwidth)
    given_limits = asyncio.run(load(policy_spec.model_copy(update={"limits": (7e9, 5e9)}), log))
    assert (given_limits.peak_flops, given_limits.bandwidth) == (7e9, 5e9)


def test_policy_process_samples_and_scores_under_a_grammar(
    tiny_model: Path, tmp_path: Path
) -> None:
    grammar, prompt = regex("[a-f]{3,9}"), [5, 6, 7]

    async def work() -> None:
        async with forked_policy(tmp_path / "log") as policy:
            await policy.load(spec(tiny_model))
            assert await policy.check_grammar(grammar) == [2]
            request = SampleRequest(tokens=prompt, max_tokens=12, seed=1, grammar=grammar)
            tokens = [token async for part in policy.sample(request) for token in part]
            (scores,) = await policy.score(ScoreBatch(items=[item_of(prompt, tokens, grammar)]))
            assert scores.logprobs == pytest.approx([t.logprob for t in tokens], abs=1e-4)
            with pytest.raises(RolloutError, match="cannot be compiled"):
                await policy.check_grammar(regex("["))
            with pytest.raises(RolloutError, match="cannot be compiled"):
                async for _ in policy.sample(request.model_copy(update={"grammar": "{}"})):
                    pass

    asyncio.run(work())
