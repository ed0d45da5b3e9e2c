"""Atelier's side of a benchmark: the policy process as a run uses it, one optimizer step at a
time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engine.bench.work import Attempt, Shape
from engine.policy.base import (
    AdamStep,
    Policy,
    PolicyInfo,
    PolicySpec,
    SampleRequest,
    TrainBatch,
    TrainItem,
)
from engine.policy.worker import TorchPolicy
from engine.protocol.config.algorithm import Algorithm, NoCorrection
from engine.protocol.config.project import ModelConfig
from engine.reward.advantage.group import advantages

LR = 1e-5
UNCLIPPED = 1e9
STEP = AdamStep(lr=LR, max_grad_norm=UNCLIPPED)
"""Optimizer step with clipping disabled, so that unscaled gradients can be compared."""


@dataclass
class StepResult:
    """Times, memory and metrics of one step of one of the compared trainers (Atelier or TRL)."""

    seconds: float
    sample_s: float
    update_s: float
    peak_bytes: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


class Atelier:
    """Atelier's policy process in a benchmark. Create it with `start`, end it with `close`."""

    def __init__(self, policy: Policy, info: PolicyInfo, trainer: TorchPolicy | None) -> None:
        self.policy = policy
        self.info = info
        self._trainer = trainer

    @classmethod
    async def start(
        cls,
        model: Path,
        scratch: Path,
        dtype: str,
        batch_tokens: int = 2048,
        max_context: int = 1024,
        policy: Callable[[TorchPolicy], Policy] | None = None,
    ) -> "Atelier":
        """Start a policy process that logs to the folder `scratch`, and load the model in precision
        `dtype`. `batch_tokens`: tokens per micro-batch. `policy` can wrap the process, for example
        with another sampler."""
        trainer = await TorchPolicy.start(scratch / "atelier.log", str(model))
        made = policy(trainer) if policy else trainer
        return await cls.of(made, model, dtype, batch_tokens, max_context, trainer)

    @classmethod
    async def of(
        cls,
        policy: Policy,
        model: Path,
        dtype: str,
        batch_tokens: int = 2048,
        max_context: int = 1024,
        trainer: TorchPolicy | None = None,
    ) -> "Atelier":
        """Load the model into a started policy, which is closed if that fails. `trainer` is its
        torch process, whose peak GPU memory is reported; None: the memory of its first process."""
        spec = PolicySpec(
            model_path=str(model),
            model=ModelConfig(name=str(model), dtype=dtype, max_context=max_context),  # type: ignore[arg-type]
            seed=0,
            batch_tokens=batch_tokens,
        )
        try:
            info = await policy.load(spec)
            await policy.publish(0)
        except BaseException:
            await policy.close()
            raise
        return cls(policy, info, trainer)

    async def close(self) -> None:
        await self.policy.close()

    async def record(
        self, prompts: list[list[int]], shape: Shape, rewards: list[float]
    ) -> list[Attempt]:
        """Sample `shape.group` completions of exactly `shape.completion` tokens per prompt. They
        get the given `rewards`, one per completion in the order of the prompts."""
        ordered = [prompt for prompt in prompts for _ in range(shape.group)]
        sampled = await asyncio.gather(
            *(self._sample(p, shape.completion, n) for n, p in enumerate(ordered))
        )
        return [
            Attempt(
                prompt=prompt,
                completion=[token for token, _ in drawn],
                mask=[1] * len(drawn),
                logprobs=[logprob for _, logprob in drawn],
                reward=reward,
                group=number // shape.group,
            )
            for number, (prompt, drawn, reward) in enumerate(
                zip(ordered, sampled, rewards, strict=True)
            )
        ]

    async def replay(self, attempts: list[Attempt]) -> StepResult:
        """Make and time one update on these trajectories, without sampling, and with importance
        ratio 1 as in TRL."""
        start_s = time.perf_counter()
        metrics = await self._learn(attempts, Algorithm(correction=NoCorrection()))
        seconds = time.perf_counter() - start_s
        return StepResult(seconds, 0.0, seconds, await self._peak_bytes(), metrics)

    async def live(
        self, prompts: list[list[int]], shape: Shape, rewards: list[float]
    ) -> StepResult:
        """Make and time a complete step: sample like `record`, update, publish the new weights."""
        start_s = time.perf_counter()
        attempts = await self.record(prompts, shape, rewards)
        sampled_s = time.perf_counter()
        limits = await self.policy.sampling()
        metrics = limits | await self._learn(attempts, Algorithm())
        await self.policy.publish(self.policy.version + 1)
        end_s = time.perf_counter()
        peak = await self._peak_bytes()
        return StepResult(end_s - start_s, sampled_s - start_s, end_s - sampled_s, peak, metrics)

    async def _learn(self, attempts: list[Attempt], algorithm: Algorithm) -> dict[str, float]:
        batch = TrainBatch(
            items=items_of(attempts),
            algorithm=algorithm,
            normaliser=sum(sum(a.mask) for a in attempts),
        )
        metrics = await self.policy.forward_backward(batch)
        return {**metrics, **await self.policy.optim_step(STEP)}

    async def _sample(self, prompt: list[int], count: int, seed: int) -> list[tuple[int, float]]:
        request = SampleRequest(tokens=prompt, max_tokens=count, seed=seed, ignore_eos=True)
        return [
            (token.token, token.logprob)
            async for part in self.policy.sample(request)
            for token in part
        ]

    async def _peak_bytes(self) -> int:
        """Peak memory of the policy process in bytes: GPU memory by torch, else resident memory."""
        held = await self._trainer.peak_bytes() if self._trainer else None
        if held is not None:
            return held
        status = Path(f"/proc/{self.policy.pids[0]}/status")
        if status.exists():
            line = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
            return int(line.split()[1]) * 1024
        memory: Any = psutil.Process(self.policy.pids[0]).memory_info()
        return int(getattr(memory, "peak_wset", memory.rss))


def items_of(attempts: Sequence[Attempt]) -> list[TrainItem]:
    """Return training items of complete groups, with advantages as computed in a training run."""
    items = []
    for group in sorted({attempt.group for attempt in attempts}):
        siblings = [attempt for attempt in attempts if attempt.group == group]
        worth = advantages(Algorithm().advantage, [sibling.reward for sibling in siblings])
        for attempt, advantage in zip(siblings, worth, strict=True):
            assert advantage is not None
            sampled = [p for p, own in zip(attempt.logprobs, attempt.mask, strict=True) if own]
            items.append(
                TrainItem(
                    tokens=[*attempt.prompt, *attempt.completion],
                    spans=_spans(attempt),
                    logprobs=sampled,
                    advantages=[advantage] * len(sampled),
                )
            )
    return items


def per_turn(attempts: Sequence[Attempt]) -> list[TrainItem]:
    """Return training items with one turn each: its tokens are all tokens up to the end of the
    turn, and only those of the turn are trained."""
    rows = []
    for item in items_of(attempts):
        done = 0
        for start, end in item.spans:
            own = slice(done, done + end - start)
            rows.append(
                TrainItem(
                    tokens=item.tokens[:end],
                    spans=[(start, end)],
                    logprobs=item.logprobs[own],
                    advantages=item.advantages[own],
                )
            )
            done = own.stop
    return rows


def _spans(attempt: Attempt) -> list[tuple[int, int]]:
    offset = len(attempt.prompt)
    edges = [
        offset + place
        for place, (before, own) in enumerate(
            zip([0, *attempt.mask], [*attempt.mask, 0], strict=True)
        )
        if before != own
    ]
    return list(zip(edges[::2], edges[1::2], strict=True))
