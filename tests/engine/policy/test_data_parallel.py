"""Data parallelism over gloo: same gradient as one process, and a clean end when a rank dies."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from engine.policy.base import (
    AdamStep,
    Policy,
    PolicySpec,
    SampleRequest,
    ScoreBatch,
    TrainBatch,
    TrainItem,
)
from engine.policy.data_parallel import ParallelPolicy, partition_sequences
from engine.protocol.config.algorithm import Algorithm, Gspo
from engine.protocol.config.project import ModelConfig
from engine.runtime.child import ChildDied
from engine.runtime.closing import closing
from tests.support.engine_starter import forked_policy

STEM = [1, 70, 71, 72, 73, 74]


def spec(model: Path) -> PolicySpec:
    return PolicySpec(
        model_path=str(model), model=ModelConfig(dtype="float32", rank=4, alpha=8), seed=3,
        batch_tokens=64,
    )  # fmt: skip


def batch(count: int = 7) -> TrainBatch:
    items = [
        TrainItem(
            tokens=[*STEM, *range(20 + n % 3, 30 + 2 * n)],
            spans=[(len(STEM), len(STEM) + 4), (len(STEM) + 6, len(STEM) + 8)],
            logprobs=[-5.5 + 0.01 * n] * 6,
            advantages=[(-1.0) ** n * (1 + n / 10)] * 6,
        )
        for n in range(count)
    ]
    return TrainBatch(items=items, normaliser=6 * count)


async def gradient(policy: Policy, folder: Path, train_batch: TrainBatch) -> dict[str, float]:
    """Train one step and save it; the first moment of AdamW is a tenth of the gradient."""
    metrics = await policy.forward_backward(train_batch)
    metrics |= await policy.optim_step(AdamStep(lr=1e-2, max_grad_norm=1e9))
    folder.mkdir()
    await policy.save(folder)
    return metrics | await policy.publish(1)


def moments(folder: Path) -> dict[str, float]:
    state = load_file(folder / "trainer" / "optimizer.safetensors")
    return {k: v for k, v in state.items() if k.endswith("exp_avg")}


def test_two_processes_match_one_in_gradient_scores_samples_and_gspo_ratios(
    tiny_model: Path, tmp_path: Path
) -> None:
    async def work() -> None:
        log = tmp_path / "log"
        async with (
            forked_policy(log) as one_process,
            closing(await ParallelPolicy.start(log, "tiny", 2)) as two_processes,
        ):
            policies: list[Policy] = [one_process, two_processes]
            await asyncio.gather(*(policy.load(spec(tiny_model)) for policy in policies))
            for number, train_batch in enumerate((batch(), batch(1))):
                metrics = [
                    await gradient(policy, tmp_path / f"{n}-{number}", train_batch)
                    for n, policy in enumerate(policies)
                ]
                one, two = (moments(tmp_path / f"{n}-{number}") for n in range(2))
                gap = max(10 * float((one[name] - two[name]).abs().max()) for name in one)
                print(f"{len(train_batch.items)} sequences: largest gradient difference {gap:.1e}")
                assert gap <= 1e-6
                expected = {
                    name: pytest.approx(metrics[0][name], rel=1e-4, abs=1e-6) for name in STEADY
                }
                assert {name: metrics[1][name] for name in STEADY} == expected
            scores = [
                await policy.score(ScoreBatch(items=batch().items)) for policy in policies
            ]  # fmt: skip
            for single, parallel in zip(*scores, strict=True):
                assert single.logprobs == pytest.approx(parallel.logprobs, abs=1e-5)
            requests = [SampleRequest(tokens=STEM, max_tokens=9, seed=n) for n in range(6)]
            samples = [
                await asyncio.gather(*(tokens_of(policy, request) for request in requests))
                for policy in policies
            ]
            assert samples[0] == samples[1]
            await sequence_ratios(policies)

    asyncio.run(work())


async def sequence_ratios(policies: list[Policy]) -> None:
    """GSPO ratios cover whole sequences, and none is divided between processes."""
    sequences = batch().model_copy(update={"algorithm": Algorithm(loss=Gspo())})
    one, two = [await policy.forward_backward(sequences) for policy in policies]
    assert two["loss"] == pytest.approx(one["loss"], abs=1e-6)
    assert two["ratio/p99"] == pytest.approx(one["ratio/p99"], rel=1e-4)


STEADY = ("loss", "entropy", "ratio/mean", "ratio/p99", "logprob_gap/max", "grad_norm")


async def tokens_of(policy: Policy, request: SampleRequest) -> list[int]:
    return [token.token async for part in policy.sample(request) for token in part]


def test_killed_rank_fails_the_step_and_ends_all_ranks(tiny_model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        policy = await ParallelPolicy.start(tmp_path / "log", "tiny", 2)
        pids = policy.pids
        try:
            await policy.load(spec(tiny_model))
            await policy.forward_backward(batch())
            os.kill(pids[1], signal.SIGKILL)
            start = time.monotonic()
            with pytest.raises(ChildDied, match="policy process ended: SIGKILL"):
                await policy.optim_step(AdamStep(lr=1e-2, max_grad_norm=1e9))
            assert time.monotonic() - start < 10
        finally:
            await policy.close()
        assert not any(psutil.pid_exists(pid) for pid in pids)

    asyncio.run(work())


def test_partition_balances_work_and_keeps_siblings_together() -> None:
    siblings = [[*range(100), 1000 + n, n] for n in range(4)]
    others = [[*range(500, 600), 2000 + n, n] for n in range(4)]
    mixed = [s for pair in zip(siblings, others, strict=True) for s in pair]
    assert partition_sequences(mixed, 2) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert partition_sequences([[5, 6, 7]], 3) == [[], [0], []]
    assert sorted(n for share in partition_sequences(mixed, 3) for n in share) == list(range(8))
