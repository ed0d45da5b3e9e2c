"""Peak rates of the machine: measured by the first policy, reused by the next ones."""

import asyncio
from pathlib import Path

import pytest

from engine.policy import worker
from engine.policy.base import PolicyInfo, PolicySpec
from tests.engine.policy.test_data_parallel import spec
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
