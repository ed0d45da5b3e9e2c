"""Holding the policy: sampling pauses, the time is counted, and sampling resumes."""

import asyncio
from pathlib import Path

from engine.policy.base import SampleRequest
from engine.policy.worker import TorchPolicy
from tests.engine.policy.test_data_parallel import STEM, spec, tokens_of


def test_held_policy_pauses_and_resumes_sampling(tiny_model: Path, tmp_path: Path) -> None:
    requests = [
        SampleRequest(tokens=STEM, max_tokens=400, ignore_eos=True, seed=n) for n in range(4)
    ]  # fmt: skip

    async def work() -> None:
        policy = await TorchPolicy.start(tmp_path / "log", "tiny")
        try:
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
        finally:
            await policy.close()

    asyncio.run(work())
