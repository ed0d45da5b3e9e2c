"""Checks of policy processes: log-probs of the sampler against those of the trainer, and whether a
repeated update gives the same bytes."""

import statistics
from collections.abc import Callable
from pathlib import Path

from engine.bench.atelier import Atelier, items_of
from engine.bench.compare import difference, first_gradient
from engine.bench.gpu.report import Job, Outcome, Table, tiny
from engine.bench.suite import plain_tokens
from engine.bench.work import Attempt, Shape, prompts, rewards
from engine.policy.base import ScoreBatch
from engine.policy.logprob_gap import TOLERANCE
from engine.policy.torch.model.model import ADAPTER_FILE, pick_device, pick_dtype
from engine.runtime.closing import closing

SHAPE, QUICK_SHAPE = Shape(128, 64, 8, 4), Shape(48, 12, 4, 2)
REPEATED = 2e-2
"""Largest relative (Frobenius) difference of AdamW's first moments after a repeated update on a
GPU, where kernels may sum in varying order. On the CPU no difference is allowed. Moments are sums
of gradients; weights would hide differences, since AdamW normalises the size of steps."""


async def logprobs(job: Job, say: Callable[[str], None]) -> Outcome:
    """Compare log-probs of sampled tokens by sampler and trainer; fails if the mean gap exceeds the
    tolerance of a run. `say` receives progress."""
    native = str(pick_dtype("auto", pick_device())).removeprefix("torch.")
    gaps = {dtype: await _gaps(job, dtype, say) for dtype in dict.fromkeys(("float32", native))}
    means = {dtype: statistics.fmean(found) for dtype, found in gaps.items()}
    wrong = [dtype for dtype, mean in means.items() if not mean <= TOLERANCE[dtype]]
    rows = [
        [
            dtype,
            str(len(found)),
            tiny(means[dtype]),
            tiny(sorted(found)[int(0.99 * (len(found) - 1))]),
            tiny(max(found)),
            tiny(TOLERANCE[dtype]),
        ]
        for dtype, found in gaps.items()
    ]
    differences = ", ".join(f"{tiny(max(found))} nats in {dtype}" for dtype, found in gaps.items())
    figures = {f"logprob_gap_{dtype}_mean_nats": mean for dtype, mean in means.items()}
    figures |= {f"logprob_gap_{dtype}_max_nats": max(found) for dtype, found in gaps.items()}
    head = ["precision", "tokens", "mean, nats", "99 %", "largest", "limit of mean"]
    return Outcome(
        state="failed" if wrong else "passed",
        words=f"Largest log-prob difference between sampler and trainer: {differences}.",
        figures=figures,
        tables=[
            Table(
                title="Log-prob difference of sampler and trainer",
                head=head,
                rows=rows,
                note="Built-in sampler, after one update; for vLLM, see the tables of the runs.",
            )
        ],
    )


async def _gaps(job: Job, dtype: str, say: Callable[[str], None]) -> list[float]:
    """Return |Δ log-prob| of every sampled token, with an adapter that is not zero."""
    say(f"{dtype}: sampling and scoring")
    async with closing(await Atelier.start(Path(job.model), Path(job.scratch), dtype)) as ours:
        shape = QUICK_SHAPE if job.quick else SHAPE
        batch = prompts(shape, plain_tokens(Path(job.model)), 0)
        worth = rewards(shape, 0)
        await ours.live(batch, shape, worth)
        items = items_of(await ours.record(batch, shape, worth))
        scored = await ours.policy.score(ScoreBatch(items=items))
    return [
        abs(a - b)
        for item, scores in zip(items, scored, strict=True)
        for a, b in zip(item.logprobs, scores.logprobs, strict=True)
    ]


async def determinism(job: Job, say: Callable[[str], None]) -> Outcome:
    """Make the same updates in two fresh processes. Fails on the CPU unless the adapters are
    identical, on a GPU if their gradients differ by more than REPEATED (relative). `say` receives
    progress."""
    shape = QUICK_SHAPE if job.quick else SHAPE
    attempts: list[Attempt] = []
    folders = []
    for number in range(2):
        say(f"update {number + 1} of 2, in a fresh process")
        async with closing(await Atelier.start(Path(job.model), Path(job.scratch), "auto")) as ours:
            if not attempts:
                batch = prompts(shape, plain_tokens(Path(job.model)), 0)
                attempts = await ours.record(batch, shape, rewards(shape, 0))
            for _ in range(2):
                await ours.replay(attempts)
            folder = Path(job.scratch) / f"saved-{number}"
            folder.mkdir()
            await ours.policy.save(folder)
        folders.append(folder)
    one, other = ((folder / "adapter" / ADAPTER_FILE).read_bytes() for folder in folders)
    same, apart = one == other, difference(*map(first_gradient, folders))
    card = pick_device().type == "cuda"
    result = "identical adapters." if same else f"gradients that differ by {tiny(apart)}."
    if card and not same:
        result += f" GPU kernels sum in varying order: up to {tiny(REPEATED)} is allowed."
    return Outcome(
        state="passed" if same or (card and apart <= REPEATED) else "failed",
        words=f"The same two updates, made in two separate processes, gave {result}",
        figures={"repeated_update_error": apart},
    )
