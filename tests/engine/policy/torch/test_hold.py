"""Holding the policy: sampling pauses, the time is counted, and sampling resumes."""

import asyncio
from pathlib import Path

from engine.policy.base import SampleRequest
from tests.engine.policy.test_data_parallel import STEM, spec, tokens_of
from tests.support.engine_starter import forked_policy


def test_held_policy_pauses_and_resumes_sampling(tiny_model: Path, tmp_path: Path) -> None:
    requests = [
        SampleRequest(tokens=STEM, max_tokens=400, ignore_eos=True, seed=n) for n in range(4)
    ]  # fmt: skip

    async def work() -> None:
        async with forked_policy(tmp_path / "log") as policy:
            await policy.load(spec(tiny_model))
            expected = [await tokens_of(policy, request) for request in requests]
            sampling = asyncio.gather(*(tokens_of(policy, request) for request in requests))
            await asyncio.sleep(0.05)
            await policy.hold()
            done, _ = await asyncio.wait({sampling}, timeout=1.5)
            assert not done
            await policy.go_on()
            assert await sampling == expected
            assert policy.away_s >= 1.5

    asyncio.run(work())
