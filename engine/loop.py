"""The whole algorithm, top to bottom: scenario → rollout → reward → advantage → train → checkpoint.

Comes in: an open run, a started policy, a stage for rollouts. Goes out: events and rows, through
the run. The server's supervisor wires it, restarts it, and says how it ended.

A run that was interrupted goes on from its last checkpoint: the steps behind it are trained again
on their stored trajectories, and only what is missing is rolled out, so resuming and never having
stopped give the same adapter.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Iterator

from engine import checkpoint, diagnosis
from engine.branch import compare_with_parent
from engine.evaluation.validate import validate
from engine.models import model_of
from engine.policy.base import Policy, TrainBatch
from engine.policy.start import loaded, policy_spec
from engine.project import load_scenarios
from engine.protocol.algorithm import ValueCredit
from engine.protocol.events import (
    DiagnosisChanged,
    RunContinued,
    RunFinished,
    RunPaused,
    RunStopped,
    StepFinished,
    StepStarted,
    ValidationFinished,
    WarmupFinished,
)
from engine.protocol.records import Interval, Scenario
from engine.retention import prune
from engine.rollout.attempt import Stage
from engine.rollout.groups import roll_out_groups
from engine.run import Run
from engine.seeds import derive
from engine.sft import demonstration_files, load_demonstrations
from engine.step.ahead import Groups, Rollouts, staleness
from engine.step.batch import trained_tokens
from engine.step.choose import choose
from engine.step.clock import Clock
from engine.step.close import close_batch
from engine.step.describe import describe
from engine.step.learn import learn
from engine.step.refill import planned, refill
from engine.step.review import review


class StopRequested(Exception):
    """The person asked for an end after this step."""


async def train(run: Run, policy: Policy, stage: Stage) -> None:
    """Train to the last step, or until told to stop. Raises what a worker or the store raises."""
    begun = time.monotonic()
    scenarios = load_scenarios(run.project, run.config, "train")
    held_out = load_scenarios(run.project, run.config, "validation")
    policy.on_progress = lambda done, total: run.tick(step, "training", done, total)
    step = 0
    await load(run, policy)
    history = finished_steps(run)
    step = await restore_or_warm_up(run, policy, stage)

    def roll(number: int, clock: Clock) -> Awaitable[Groups]:
        return roll_out_step(run, stage, number, scenarios, clock, number not in history)

    try:
        async with Rollouts(run, roll) as rollouts:
            while step < run.orders.steps:
                await gate(run, policy, step)
                if validation_is_due(run, step):
                    await validate(run, stage, held_out, step)
                step += 1
                clock = Clock()
                anew = step not in history
                groups = await rollouts.of(step, clock)
                sampled = await policy.sampling()
                if anew:
                    await review(run, step, clock)
                groups, again = await close_batch(run, step, groups)
                learned = await learn(run, policy, groups + again, step, clock)
                kind = run.config.train.algorithm.advantage
                told = {"groups/again": float(len(again)), **sampled, **learned}
                told |= {"staleness": staleness(step, groups)} if run.config.train.staleness else {}
                told |= stage.judge.metrics() if stage.judge else {}
                metrics = describe(groups, kind, told, clock)
                if anew:
                    await finish_step(run, step, metrics, learned, history)
                if checkpoint_is_due(run, step):
                    await keep(run, policy, step, metrics)
    except StopRequested:
        await keep(run, policy, step, history.get(step, {}))
        await run.say(RunStopped(step=step, reason="You stopped it after this step."))
        return
    await validate(run, stage, held_out, step)
    await prune(run)
    await run.say(summary(run, step, history, time.monotonic() - begun))


async def measure_baseline(run: Run, policy: Policy, stage: Stage) -> None:
    """Solve rate of the untrained model on the training scenarios: is there something to learn?"""
    begun = time.monotonic()
    scenarios = load_scenarios(run.project, run.config, "train")
    await load(run, policy)
    await policy.publish(0)
    await validate(run, stage, scenarios, 0)
    await run.say(summary(run, 0, {}, time.monotonic() - begun))


# The stages


async def load(run: Run, policy: Policy) -> None:
    await run.enter(0, "loading")
    config, model = run.config, model_of(run.spec)
    spec = policy_spec(config, model, config.model, derive(config.train.seed, "adapter") % 2**31)
    if isinstance(credit := config.train.algorithm.credit, ValueCredit):
        spec = spec.model_copy(update={"value_lr": credit.lr})
    info = await policy.load(spec)
    await run.say(loaded(info))
    if not info.shares_prefixes:
        await run.log(
            "warning",
            "policy",
            "Layers of this model keep a state that cannot branch (linear attention): each attempt "
            "is computed by itself, prompt included. The results are right, and much slower.",
        )
    if info.peak_flops:
        await run.log(
            "info",
            "policy",
            f"This machine at best: {info.peak_flops / 1e9:,.0f} GFLOP/s in {info.dtype}, "
            f"{info.bandwidth / 1e9:.0f} GB/s read. Percent of limit counts against this.",
        )


async def restore_or_warm_up(run: Run, policy: Policy, stage: Stage) -> int:
    """The step to go on from: that of the newest whole checkpoint, else 0 after the warm-up."""
    if (step := await restore(run, policy)) is not None:
        return step
    if run.config.train.warmup:
        await warm_up(run, policy, stage)
        await policy.publish(0)
        await keep(run, policy, 0, {})
        return 0
    await policy.publish(0)
    return 0


async def restore(run: Run, policy: Policy) -> int | None:
    """The step of the newest whole checkpoint, published; None where there is none."""
    known = run.reader.checkpoints()
    await asyncio.to_thread(checkpoint.sweep, run.folder, known)
    found = await asyncio.to_thread(checkpoint.newest, run.folder, known)
    if known and found != known[-1]:
        await run.log(
            "warning", "checkpoint", f"The checkpoint of step {known[-1].step} is damaged."
        )
    if not found:
        return None
    await policy.restore(run.folder / found.path)
    await policy.publish(found.step)
    return found.step


async def warm_up(run: Run, policy: Policy, stage: Stage) -> None:
    """Supervised epochs over the demonstrations, in a shuffled order of our own seed."""
    warmup = run.config.train.warmup
    assert warmup is not None
    begun = time.monotonic()
    await run.enter(0, "warming_up")
    context = run.config.model.max_context
    items = [
        item
        for file in demonstration_files(run.project, warmup)
        for item in load_demonstrations(file, stage.chat, context)
    ]
    losses: list[float] = []
    done, total = 0, len(items) * warmup.epochs
    quiet, policy.on_progress = policy.on_progress, lambda done, total: None
    for epoch in range(warmup.epochs):
        shuffled = random.Random(derive(run.config.train.seed, "warmup", epoch)).sample(
            items, len(items)
        )
        weighted = tokens = 0.0
        for start in range(0, len(shuffled), warmup.batch_size):
            part = shuffled[start : start + warmup.batch_size]
            count = sum(trained_tokens(item) for item in part)
            batch = TrainBatch(items=part, objective="supervised", normaliser=count)
            weighted += (await policy.forward_backward(batch))["loss"] * count
            tokens += count
            await policy.optim_step(warmup.lr)
            done += len(part)
            run.tick(0, "warming_up", done, total, f"epoch {epoch + 1} of {warmup.epochs}")
        losses.append(weighted / tokens)
    policy.on_progress = quiet
    await policy.optim_reset()
    seconds = time.monotonic() - begun
    await run.say(WarmupFinished(examples=len(items), losses=losses, seconds=seconds))


async def gate(run: Run, policy: Policy, step: int) -> None:
    """Between two steps: stop or wait where that was asked; what is sampled ahead waits too."""
    if run.orders.stop_after_step:
        raise StopRequested
    if not run.orders.paused:
        return
    await run.say(RunPaused(step=step))
    await policy.hold()
    while run.orders.paused:
        run.orders.changed.clear()
        await run.orders.changed.wait()
        if run.orders.stop_after_step:
            raise StopRequested
    await policy.go_on()
    await run.say(RunContinued(step=step))


def validation_is_due(run: Run, step: int) -> bool:
    every = run.config.train.validate_every
    return step == 0 or bool(every and step % every == 0)


def checkpoint_is_due(run: Run, step: int) -> bool:
    wanted, run.orders.keep = run.orders.keep, False
    return wanted or step % run.config.train.checkpoint_every == 0 or step == run.orders.steps


async def roll_out_step(
    run: Run,
    stage: Stage,
    step: int,
    scenarios: list[Scenario],
    clock: Clock,
    anew: bool,
) -> Groups:
    size = run.config.train.group_size
    chosen = choose(scenarios, run.config.train.seed, step, run.config.train.groups)
    if anew:
        await run.say(StepStarted(step=step, groups=planned(chosen, size)))
    async with clock.phase(run, step, "rolling_out"):
        if stage.judge:
            await stage.judge.prepare()
        groups = await roll_out_groups(run, stage, "train", step, chosen, size)
        return await refill(run, stage, step, scenarios, chosen, groups, anew)


async def finish_step(
    run: Run,
    step: int,
    metrics: dict[str, float],
    learned: dict[str, float],
    history: dict[int, dict[str, float]],
) -> None:
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    history[step] = finite
    await run.say(
        StepFinished(
            step=step,
            skipped=not learned,
            reason="" if learned else "No attempt differed from its siblings: nothing to learn.",
            metrics=finite,
            dropped=len(metrics) - len(finite),
        )
    )
    train = run.config.train
    ordered = [history[number] for number in sorted(history)]
    limit = 0 if run.spec.kind == "outside" else train.max_tokens
    found = diagnosis.findings(ordered, train.group_size, limit)
    previous = [
        e for e in run.reader.events_of("diagnosis.changed") if isinstance(e, DiagnosisChanged)
    ]
    if found != (previous[-1].findings if previous else []):
        await run.say(DiagnosisChanged(step=step, findings=found))


async def keep(run: Run, policy: Policy, step: int, metrics: dict[str, float]) -> None:
    """Save a checkpoint, once per step, and clear away what it makes superfluous."""
    if any(known.step == step for known in run.reader.checkpoints()):
        return
    shown = {k: v for k, v in metrics.items() if k in ("reward/mean", "loss")}
    saved = await checkpoint.save(run.folder, step, policy, {"run": run.spec.id}, shown)
    await run.writer.add_checkpoint(saved)
    await compare_with_parent(run, saved)
    await prune(run)


# What the stages are made of


def finished_steps(run: Run) -> dict[int, dict[str, float]]:
    """Metrics of the steps that are stored already."""
    events = run.reader.events_of("step.finished")
    return {e.step: e.metrics for e in events if isinstance(e, StepFinished)}


def summary(
    run: Run, step: int, history: dict[int, dict[str, float]], seconds: float
) -> RunFinished:
    rewards = [history[s]["reward/mean"] for s in sorted(history) if "reward/mean" in history[s]]
    known = run.reader.checkpoints()
    return RunFinished(
        step=step,
        seconds=seconds,
        reward_first=rewards[0] if rewards else None,
        reward_last=rewards[-1] if rewards else None,
        validation=validation_at(run, step),
        baseline=validation_at(run, 0),
        checkpoint=known[-1].path if known else "",
    )


def validation_at(run: Run, step: int) -> Interval | None:
    events: Iterator[Interval | None] = (
        e.reward
        for e in run.reader.events_of("validation.finished")
        if isinstance(e, ValidationFinished) and e.step == step
    )
    return next(events, None)
