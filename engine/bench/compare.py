"""Comparison of Atelier and TRL, alternating on the same work, with medians."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from safetensors.numpy import load_file

from engine.bench.atelier import LR, UNCLIPPED, Atelier, StepResult
from engine.bench.rival import Rival
from engine.bench.work import Attempt, Shape
from engine.bench.work import rewards as rewards_of
from engine.hardware.machine import threads
from engine.protocol.base import Value
from engine.runtime.closing import closing

Mode = Literal["replay", "live"]
Say = Callable[[str], None]
Step = Callable[[], Awaitable[StepResult]]

LIMITS = ("goodput/train", "hardware/train", "goodput/sample", "hardware/sample")
BETA1 = 0.9
"""β₁ of Adam: after the first step, the first moment is (1 − β₁) · gradient."""


class Measured(Value):
    """Medians of one trainer over the repeats: seconds, bytes, shares of the machine's peak."""

    seconds: float
    sample_s: float
    update_s: float
    peak_bytes: int
    limits: dict[str, float] = Field(default_factory=dict)


class Comparison(Value):
    """Comparison of trainers for one shape and mode; ratios are TRL's seconds over Atelier's."""

    shape: str
    dtype: str
    repeats: int
    contenders: dict[str, Measured]
    ratio_vs_trl_best: float | None = None
    ratio_vs_trl_defaults: float | None = None
    gradient_error_vs_trl_best: float | None = None
    """Relative (Frobenius) difference of the adapters' gradients; replay only."""


class Bench:
    """Settings that all comparisons share: the model, its dtype, a scratch folder."""

    def __init__(
        self,
        model: Path,
        dtype: str,
        scratch: Path,
        repeats: int,
        say: Say,
        variants: Sequence[str] = ("best", "defaults"),
        vllm_share: float = 0.0,
    ) -> None:
        """Set up comparisons; with `vllm_share` (of GPU memory) TRL samples with its own vLLM."""
        self.model, self.dtype = model, dtype
        self.scratch, self.repeats = scratch, repeats
        self.say = say
        self.variants, self.vllm_share = variants, vllm_share

    async def compare(
        self, ours: Atelier, shape: Shape, mode: Mode, prompts: list[list[int]], trl: Path | None
    ) -> Comparison:
        """Compare step times and gradients of Atelier (`ours`) and TRL, from the same adapter with
        a new optimizer. `replay` times only the update, on trajectories sampled once from
        `prompts`; `live` also samples. `trl` is the Python with TRL; None measures Atelier
        alone."""
        worth = rewards_of(shape, 0)
        attempts = await ours.record(prompts, shape, worth)
        adapter = self.scratch / f"adapter-{shape.words.replace('/', '-')}-{mode}"
        await self._common_start(ours, attempts, adapter)

        async def our_step() -> StepResult:
            if mode == "replay":
                return await ours.replay(attempts)
            return await ours.live(prompts, shape, worth)

        await our_step()
        after_first = adapter.with_suffix(".first")
        after_first.mkdir()
        await ours.policy.save(after_first)
        words, error = f"{mode} {shape.words}", None
        laps: dict[str, list[StepResult]] = {"atelier": []}
        ratios: dict[str, float] = {}
        for variant in self.variants if trl else ():
            assert trl is not None
            gradient = self.scratch / f"{adapter.name}-{variant}.safetensors"
            job = {
                "model": str(self.model),
                "adapter": str(adapter / "adapter"),
                "variant": variant,
                "dtype": ours.info.dtype,
                "card": ours.info.on_card,
                "vllm_share": self.vllm_share if mode == "live" else 0.0,
                "threads": threads(),
                "prompts": prompts,
                "attempts": [a.model_dump() for a in attempts] if mode == "replay" else [],
                "group": shape.group,
                "completion": shape.completion,
                "steps": self.repeats + 1,
                "lr": LR,
                "max_grad_norm": UNCLIPPED,
                "gradient": str(gradient),
                "scratch": str(self.scratch / "trl"),
            }
            self.say(f"{words}: starting TRL ({variant})")
            async with closing(
                await Rival.start(trl, job, self.scratch / f"trl-{variant}.log")
            ) as rival:
                own, theirs = await self._in_turn(words, our_step, rival, variant)
            laps["atelier"] += own
            laps[f"trl_{variant}"] = theirs
            ratios[variant] = ratio(theirs, own)
            self.say(f"{words}: TRL ({variant}) takes {ratios[variant]:.2f} × Atelier's time")
            if mode == "replay" and variant == "best":
                error = difference(first_gradient(after_first), named(load_file(gradient)))
        if not trl:
            laps["atelier"] = [await our_step() for _ in range(self.repeats)]
        return Comparison(
            shape=shape.words,
            dtype=ours.info.dtype,
            repeats=self.repeats,
            contenders={name: measured(of) for name, of in laps.items()},
            ratio_vs_trl_best=ratios.get("best"),
            ratio_vs_trl_defaults=ratios.get("defaults"),
            gradient_error_vs_trl_best=error,
        )

    async def _common_start(self, ours: Atelier, attempts: list[Attempt], adapter: Path) -> None:
        """Save an adapter whose A and B are both nonzero, from which Atelier and TRL start."""
        await ours.replay(attempts)
        adapter.mkdir()
        await ours.policy.save(adapter)
        await ours.policy.optim_reset()

    async def _in_turn(
        self, words: str, our_step: Step, rival: Rival, variant: str
    ) -> tuple[list[StepResult], list[StepResult]]:
        """Alternate steps of Atelier and TRL; return both results without the first (warm-up)
        round. Only two trainers run at a time, since they share memory."""
        own, theirs = [], []
        for repeat in range(self.repeats + 1):
            self.say(f"{words}: TRL ({variant}), step {repeat} of {self.repeats}")
            own.append(await our_step())
            theirs.append(await rival.step())
        return own[1:], theirs[1:]


def measured(laps: list[StepResult]) -> Measured:
    limits = {
        name: statistics.median(lap.metrics[name] for lap in laps)
        for name in laps[0].metrics
        if name in LIMITS
    }
    return Measured(
        seconds=statistics.median(lap.seconds for lap in laps),
        sample_s=statistics.median(lap.sample_s for lap in laps),
        update_s=statistics.median(lap.update_s for lap in laps),
        peak_bytes=max(lap.peak_bytes for lap in laps),
        limits=limits,
    )


def ratio(theirs: list[StepResult], own: list[StepResult]) -> float:
    """Median over rounds of TRL's seconds (`theirs`) divided by Atelier's (`own`)."""
    return statistics.median(a.seconds / b.seconds for a, b in zip(theirs, own, strict=True))


def first_gradient(folder: Path) -> dict[str, Any]:
    """Gradient of the first step after `optim_reset`, from the optimizer state that `Policy.save`
    wrote into `folder` after that step; tensors by layer and LoRA matrix."""
    moments = load_file(folder / "trainer" / "optimizer.safetensors")
    return named(
        {
            name.removesuffix("/exp_avg"): value / (1 - BETA1)
            for name, value in moments.items()
            if name.endswith("/exp_avg")
        }
    )


def named(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """LoRA tensors alone, with names that begin at `layers.`, without the prefixes of wrappers."""
    return {
        name[name.index("layers.") :].replace(".default", ""): value
        for name, value in tensors.items()
        if "lora_" in name
    }


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Relative difference ‖ours − theirs‖ / ‖theirs‖ over all matrices."""
    assert ours.keys() == theirs.keys(), "Atelier and TRL do not train the same matrices"
    apart = sum(float(((ours[n] - theirs[n]) ** 2).sum()) for n in ours)
    whole = sum(float((theirs[n] ** 2).sum()) for n in ours)
    return (apart / whole) ** 0.5


class Growth(Value):
    """Seconds per step while one dimension of the shape (P/C/G/Q) grows."""

    name: str
    shapes: list[str]
    sample_s: list[float]
    update_s: list[float]


class MultiTurn(Value):
    """Comparison of a shared prefix tree with one row per turn, each with its whole history."""

    turns: int
    prompt: int
    answer: int
    observation: int
    group: int
    tree_s: float
    rows_s: float
    ratio: float


class Report(Value):
    model: str
    device: str
    dtype: str
    repeats: int
    replay: dict[str, Comparison]
    """Results by shape, P/C/G/Q."""
    live: dict[str, Comparison]
    growth: list[Growth]
    multi_turn: MultiTurn | None
