"""Peak rates of the machine are measured by the first policy, and known to the next ones."""

import asyncio
from pathlib import Path

import pytest

from engine.policy import worker
from engine.policy.base import PolicyInfo, PolicySpec
from tests.engine.policy.test_data_parallel import spec
from tests.support.engine_starter import forked_policy


async def loaded(asked: PolicySpec, log: Path) -> PolicyInfo:
    async with forked_policy(log) as policy:
        return await policy.load(asked)


def test_peak_rates_are_measured_once(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "peak_rates", {})
    asked, log = spec(tiny_model), tmp_path / "log"
    first, second = [asyncio.run(loaded(asked, log)) for _ in range(2)]
    assert first.peak_flops > 0
    assert first.bandwidth > 0
    assert (second.peak_flops, second.bandwidth) == (first.peak_flops, first.bandwidth)
    told = asyncio.run(loaded(asked.model_copy(update={"limits": (7e9, 5e9)}), log))
    assert (told.peak_flops, told.bandwidth) == (7e9, 5e9)
