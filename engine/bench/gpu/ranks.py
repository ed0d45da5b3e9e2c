"""Check of two data-parallel trainers on a batch, one per GPU: same gradient, less time."""

import statistics
from collections.abc import Callable
from pathlib import Path

from engine.bench.atelier import Atelier
from engine.bench.compare import difference, first_gradient
from engine.bench.gpu.report import Job, Outcome, Table, seconds, times, tiny
from engine.bench.suite import plain_tokens
from engine.bench.work import Attempt, Shape, prompts, rewards
from engine.hardware.devices import cards_of
from engine.policy.data_parallel import ParallelPolicy
from engine.protocol.config.project import BackendConfig
from engine.runtime.closing import closing

COUNT = 2
TOLERANCE = 1e-5
"""Relative (Frobenius) difference of the gradients in float32."""
SHAPE, QUICK_SHAPE = Shape(512, 128, 8, 16), Shape(48, 12, 4, 2)
REPEATS = 3


async def run(job: Job, say: Callable[[str], None]) -> Outcome:
    """Compare gradients of one trainer process with those of two in parallel; fails if they differ
    by more than the tolerance. `say` receives progress."""
    shape = QUICK_SHAPE if job.quick or job.on_processor else SHAPE
    batch = prompts(shape, plain_tokens(Path(job.model)), 0)
    attempts: list[Attempt] = []
    found, taken = [], []
    for count in (1, COUNT):
        say(f"{count} trainer{'s' * (count > 1)}: gradient")
        async with closing(await _start(job, count, "float32")) as ours:
            attempts = attempts or await ours.record(batch, shape, rewards(shape, 0))
            await ours.replay(attempts)
            folder = Path(job.scratch) / f"first-{count}"
            folder.mkdir()
            await ours.policy.save(folder)
        found.append(first_gradient(folder))
        say(f"{count} trainer{'s' * (count > 1)}: speed")
        taken.append(await _seconds(job, count, attempts))
    # B alone begins at 0, so at first only its gradient is not 0
    own, shared = ({n: g for n, g in one.items() if "lora_B" in n} for one in found)
    apart, faster = difference(shared, own), taken[0] / taken[1]
    through = "gloo, on shared cores" if job.on_processor else "NCCL"
    return Outcome(
        state="passed" if apart <= TOLERANCE else "failed",
        words=f"Gradients of one and two trainers differ by {tiny(apart)} (limit "
        f"{tiny(TOLERANCE)}); two trainers are {times(faster)} as fast as one.",
        figures={"shared_gradient_error": apart, "speed_up_ratio": faster},
        tables=[
            Table(
                title="Two trainers",
                head=["trainers", "update", "speed-up", "gradient vs. one"],
                rows=[
                    ["1", seconds(taken[0]), times(1.0), "–"],
                    [str(COUNT), seconds(taken[1]), times(faster), tiny(apart)],
                ],
                note=f"{shape.words} (prompt tokens, completion tokens, rollouts per group, "
                f"groups). Gradients are exchanged over {through} and compared in float32; time "
                "is measured in the precision of a run.",
            )
        ],
    )


async def _seconds(job: Job, count: int, attempts: list[Attempt]) -> float:
    """Median seconds of an update after one warm-up."""
    async with closing(await _start(job, count, "auto")) as ours:
        laps = [await ours.replay(attempts) for _ in range(REPEATS + 1)]
    return statistics.median(lap.seconds for lap in laps[1:])


async def _start(job: Job, count: int, dtype: str) -> Atelier:
    model, scratch = Path(job.model), Path(job.scratch)
    if count == 1:
        return await Atelier.start(model, scratch, dtype)
    cards = cards_of(BackendConfig(processes=count))
    policy = await ParallelPolicy.start(scratch / "ranks.log", str(model), count, cards)
    return await Atelier.of(policy, model, dtype)
