"""Comparison of Atelier and TRL's GRPOTrainer: updates on stored trajectories, or whole steps."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from engine.bench.atelier import Atelier
from engine.bench.compare import Bench, Comparison, Mode
from engine.bench.gpu.report import Job, Outcome, Table, gib, seconds, times, tiny
from engine.bench.suite import plain_tokens
from engine.bench.work import Shape, prompts
from engine.hardware.devices import cards_of
from engine.policy.start import server_place
from engine.policy.vllm.policy import VllmPolicy
from engine.policy.worker import TorchPolicy
from engine.protocol.config.project import (
    AgentConfig,
    BackendConfig,
    ModelConfig,
    ProjectConfig,
    TrainConfig,
)
from engine.runtime.closing import closing

ON_CARD = (Shape(256, 64, 8, 8), Shape(1024, 256, 8, 4))
ON_PROCESSOR, QUICK = (Shape(256, 64, 8, 2),), (Shape(64, 16, 4, 1),)
REPEATS, QUICK_REPEATS = 5, 2
BATCH_TOKENS = {True: 32_768, False: 2048}
"""Tokens per pass of Atelier's trainer, on GPU or CPU. On a GPU, TRL also takes the batch at
once."""
VLLM_SHARE = 0.3
"""Share of the GPU for each of the two servers, which run together; neither sleeps."""
NAMES = {"atelier": "Atelier", "trl_best": "TRL, best", "trl_defaults": "TRL, defaults"}


async def run(job: Job, say: Callable[[str], None]) -> Outcome:
    """Compare the step times of Atelier and TRL in the mode of the job (`replay` or `live`); `say`
    receives progress. No ratio fails the check. Raises BenchError if TRL ends early."""
    mode: Mode = job.arguments["mode"]
    shapes = QUICK if job.quick else ON_PROCESSOR if job.on_processor else ON_CARD
    served = mode == "live" and job.vllm and not job.on_processor and job.trl == sys.executable
    bench = Bench(
        model=Path(job.model),
        dtype="auto",
        scratch=Path(job.scratch),
        repeats=QUICK_REPEATS if job.quick else REPEATS,
        say=say,
        variants=("best",) if job.quick else ("best", "defaults"),
        vllm_share=VLLM_SHARE if served else 0.0,
    )
    words = plain_tokens(bench.model)
    made = []
    for shape in shapes:
        say("loading the model")
        async with closing(await _ours(job, shape, served)) as ours:
            batch = prompts(shape, words, 0)
            made.append(await bench.compare(ours, shape, mode, batch, Path(job.trl)))
    return _outcome(mode, made, served)


async def _ours(job: Job, shape: Shape, served: bool) -> Atelier:
    model, scratch = Path(job.model), Path(job.scratch)
    context = max(64, shape.prompt + shape.completion)
    tokens = BATCH_TOKENS[not job.on_processor]
    if not served:
        return await Atelier.start(model, scratch, "auto", tokens, context)
    config = ProjectConfig(
        model=ModelConfig(name=job.model, max_context=context),
        backend=BackendConfig(sampler="vllm", memory_share=VLLM_SHARE, sleep="off"),
        agent=AgentConfig(concurrency=shape.attempts, max_turns=1),
        train=TrainConfig(groups=shape.groups, group_size=shape.group, max_tokens=shape.completion),
    )
    place = await asyncio.to_thread(server_place, config, model, cards_of(config.backend))

    def with_server(trainer: TorchPolicy) -> VllmPolicy:
        return VllmPolicy(trainer, scratch / "vllm.log", place)

    return await Atelier.start(model, scratch, "auto", tokens, context, with_server)


def _outcome(mode: Mode, made: list[Comparison], served: bool) -> Outcome:
    figures: dict[str, float] = {}
    rows = []
    for found in made:
        shape = found.shape.replace("/", "_")
        ratios = {"trl_best": found.ratio_vs_trl_best, "trl_defaults": found.ratio_vs_trl_defaults}
        figures |= {f"{mode}_{shape}_{n}_ratio": r for n, r in ratios.items() if r is not None}
        error = found.gradient_error_vs_trl_best
        if error is not None:
            figures[f"{mode}_{shape}_gradient_error"] = error
        rows += [
            [
                found.shape,
                NAMES[name],
                seconds(one.seconds),
                seconds(one.sample_s) if mode == "live" else "–",
                seconds(one.update_s),
                times(ratios.get(name)),
                gib(one.peak_bytes),
                tiny(error if name == "trl_best" else None),
            ]
            for name, one in found.contenders.items()
        ]
    what = "The update on stored trajectories" if mode == "replay" else "Sampling and update"
    head = ["P/C/G/Q", "", "step", "sampling", "update", "× ours", "peak", "gradient"]
    sampler = "a separate vLLM server" if served else "transformers' generate"
    ratio = ", ".join(
        f"{times(found.ratio_vs_trl_best)} Atelier's time for {found.shape}" for found in made
    )
    return Outcome(
        state="passed",
        words=f"TRL with its best settings takes {ratio}.",
        figures=figures,
        tables=[
            Table(
                title=what,
                head=head if mode == "replay" else head[:-1],
                rows=rows if mode == "replay" else [row[:-1] for row in rows],
                note=f"{made[0].dtype}; medians of {made[0].repeats} interleaved steps. × ours: "
                "median ratio to Atelier's time. P/C/G/Q: prompt tokens, completion tokens, "
                "rollouts per group, groups. Peak: peak memory of the trainer's process; on a GPU, "
                "memory allocated by torch. "
                + (
                    "Gradient: relative difference between the gradients of TRL and Atelier."
                    if mode == "replay"
                    else f"TRL samples with {sampler}, Atelier with "
                    + ("its own vLLM server." if served else "its own sampler.")
                ),
            )
        ],
    )
