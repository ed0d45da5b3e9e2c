"""Contenders in turn on the same work: A, B, C, A, B, C … with their medians."""

import statistics
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from safetensors.numpy import load_file

from engine.bench.atelier import LR, UNCLIPPED, Atelier, Lap
from engine.bench.rival import Rival, threads
from engine.bench.work import Attempt, Shape
from engine.bench.work import rewards as rewards_of

Mode = Literal["replay", "live"]
Say = Callable[[str], None]
Step = Callable[[], Awaitable[Lap]]

BETA1 = 0.9
"""Of Adam: after its first step, the first moment is (1 − β₁) · gradient."""


class Measured(BaseModel):
    """Medians of one contender over the repeats; seconds, bytes, shares of the limit."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    sample_s: float
    update_s: float
    peak_bytes: int
    limits: dict[str, float] = {}


class Comparison(BaseModel):
    """One shape in one mode; ratios are seconds of the other over ours."""

    model_config = ConfigDict(frozen=True)

    shape: str
    dtype: str
    repeats: int
    contenders: dict[str, Measured]
    ratio_vs_trl_best: float | None = None
    ratio_vs_trl_defaults: float | None = None
    gradient_error_vs_trl_best: float | None = None
    """Relative (Frobenius) difference of the adapters' gradients; replay only."""


class Bench:
    """What all comparisons share: the model, its dtype, a folder for scratch files."""

    def __init__(self, model: Path, dtype: str, scratch: Path, repeats: int, say: Say) -> None:
        self.model, self.dtype = model, dtype
        self.scratch, self.repeats = scratch, repeats
        self.say = say

    async def compare(
        self, ours: Atelier, shape: Shape, mode: Mode, prompts: list[list[int]], trl: Path | None
    ) -> Comparison:
        """Both modes begin from one adapter, with an optimizer that has no past."""
        worth = rewards_of(shape, 0)
        attempts = await ours.record(prompts, shape, worth)
        adapter = self.scratch / f"adapter-{shape.words.replace('/', '-')}-{mode}"
        await self._common_start(ours, attempts, adapter)
        after_first = adapter.with_suffix(".first")
        after_first.mkdir()
        rivals: dict[str, Rival] = {}
        variants = ["best", "defaults"] if trl else []
        gradients = {v: self.scratch / f"{adapter.name}-{v}.safetensors" for v in variants}
        try:
            for variant in variants:
                self.say(f"starting TRL ({variant})")
                job = {
                    "model": str(self.model),
                    "adapter": str(adapter / "adapter"),
                    "variant": variant,
                    "dtype": ours.info.dtype,
                    "threads": threads(),
                    "prompts": prompts,
                    "attempts": [a.model_dump() for a in attempts] if mode == "replay" else [],
                    "group": shape.group,
                    "completion": shape.completion,
                    "steps": self.repeats + 1,
                    "lr": LR,
                    "max_grad_norm": UNCLIPPED,
                    "gradient": str(gradients[variant]),
                    "scratch": str(self.scratch / "trl"),
                }
                assert trl is not None
                log = self.scratch / f"trl-{variant}.log"
                rivals[variant] = await Rival.start(trl, job, log)

            async def our_step() -> Lap:
                if mode == "replay":
                    return await ours.replay(attempts)
                return await ours.live(prompts, shape, worth)

            steps: dict[str, Step] = {"atelier": our_step}
            steps |= {f"trl_{name}": rival.step for name, rival in rivals.items()}
            laps = await self._in_turn(f"{mode} {shape.words}", steps, ours, after_first)
        finally:
            for rival in rivals.values():
                await rival.close()
        error = None
        if trl and mode == "replay":
            error = difference(first_gradient(after_first), named(load_file(gradients["best"])))
        return Comparison(
            shape=shape.words,
            dtype=ours.info.dtype,
            repeats=self.repeats,
            contenders={name: measured(of) for name, of in laps.items()},
            ratio_vs_trl_best=ratio(laps, "trl_best"),
            ratio_vs_trl_defaults=ratio(laps, "trl_defaults"),
            gradient_error_vs_trl_best=error,
        )

    async def _common_start(self, ours: Atelier, attempts: list[Attempt], adapter: Path) -> None:
        """An adapter with something in both of its matrices, saved for everybody."""
        await ours.replay(attempts)
        adapter.mkdir()
        await ours.policy.save(adapter)
        await ours.policy.optim_reset()

    async def _in_turn(
        self, words: str, steps: Mapping[str, Step], ours: Atelier, first: Path
    ) -> dict[str, list[Lap]]:
        laps: dict[str, list[Lap]] = {name: [] for name in steps}
        for repeat in range(self.repeats + 1):
            for name, step in steps.items():
                self.say(f"{words}: {name}, {f'step {repeat}' if repeat else 'warm-up'}")
                laps[name].append(await step())
                if name == "atelier" and repeat == 0:
                    await ours.policy.save(first)
        return {name: of[1:] for name, of in laps.items()}


def measured(laps: list[Lap]) -> Measured:
    limits = {
        name: statistics.median(lap.metrics[name] for lap in laps)
        for name in laps[0].metrics
        if name.startswith("limit/")
    }
    return Measured(
        seconds=statistics.median(lap.seconds for lap in laps),
        sample_s=statistics.median(lap.sample_s for lap in laps),
        update_s=statistics.median(lap.update_s for lap in laps),
        peak_bytes=max(lap.peak_bytes for lap in laps),
        limits=limits,
    )


def ratio(laps: Mapping[str, list[Lap]], other: str) -> float | None:
    """Median of the other's seconds over ours, round by round: noise of the machine hits both."""
    if other not in laps:
        return None
    pairs = zip(laps[other], laps["atelier"], strict=True)
    return statistics.median(theirs.seconds / own.seconds for theirs, own in pairs)


def first_gradient(folder: Path) -> dict[str, Any]:
    """What the first step after `optim_reset` saw, from the saved state of its optimizer."""
    moments = load_file(folder / "trainer" / "optimizer.safetensors")
    return named(
        {
            name.removesuffix("/exp_avg"): value / (1 - BETA1)
            for name, value in moments.items()
            if name.endswith("/exp_avg")
        }
    )


def named(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """By layer and matrix, whatever the wrappers around the model call them."""
    return {
        name[name.index("layers.") :].replace(".default", ""): value
        for name, value in tensors.items()
        if "lora_" in name
    }


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """‖ours − theirs‖ / ‖theirs‖ over all matrices."""
    assert ours.keys() == theirs.keys(), "the contenders do not train the same matrices"
    apart = sum(float(((ours[n] - theirs[n]) ** 2).sum()) for n in ours)
    whole = sum(float((theirs[n] ** 2).sum()) for n in ours)
    return (apart / whole) ** 0.5
