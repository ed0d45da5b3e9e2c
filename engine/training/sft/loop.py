"""SFT run, top to bottom: demonstrations → updates → held-out loss → checkpoint.

Input: an open run with its demonstrations, a started policy. Output: events and checkpoints,
through the run. An interrupted run resumes from its newest checkpoint. Batch and learning rate
depend only on the number of the update, so a resumed and an uninterrupted run give the same
adapter.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path

from engine.policy.base import AdamStep, Policy, ScoreBatch, TrainBatch, TrainItem
from engine.protocol.config.project import WarmupConfig
from engine.protocol.events.run import RunFinished, RunStopped, StepFinished
from engine.protocol.events.sft import LossMeasured, WarmupFinished
from engine.protocol.problems import ConfigError
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rollout import Stage
from engine.storage.checkpoints.retention import prune
from engine.storage.run_folder.run import Run
from engine.training.labels.gold import FILE as GOLD
from engine.training.lifecycle import (
    StopRequested,
    finished_steps,
    load,
    restore,
    save_checkpoint,
    wait_while_paused,
)
from engine.training.sft.data import Entry, read_source, refusal, stored_examples
from engine.training.sft.schedule import batch_at, exceeds_patience, rate_at, updates_of
from engine.training.step.batch import trained_tokens
from engine.trust.files import project_file


async def update(policy: Policy, entries: Sequence[Entry], lr: float) -> dict[str, float]:
    """Make one optimizer step with rate `lr` on demonstrations and return its metrics. The loss is
    the mean over all trained tokens, in nats; their number is the metric `tokens/trained`."""
    items = items_of(entries)
    count = sum(map(trained_tokens, items))
    batch = TrainBatch(items=items, objective="supervised", normaliser=count)
    metrics = await policy.forward_backward(batch) | await policy.optim_step(AdamStep(lr=lr))
    return {**metrics, "lr": lr, "tokens/trained": float(count)}


async def loss_on(policy: Policy, entries: Sequence[Entry]) -> tuple[float, int]:
    """Mean loss per trained token in nats on `entries`, and the number of these tokens. The weights
    are not changed."""
    scores = await policy.score(ScoreBatch(items=items_of(entries)))
    count = sum(len(score.logprobs) for score in scores)
    return -sum(sum(score.logprobs) for score in scores) / count, count


def items_of(entries: Sequence[Entry]) -> list[TrainItem]:
    return [item for entry in entries for item in entry.items]


async def warm_up(run: Run, policy: Policy, stage: Stage, warmup: WarmupConfig) -> None:
    """Train on the project's demonstrations before step 1, for the configured number of epochs."""
    start_s = time.monotonic()
    await run.enter(0, "warming_up")
    context, seed = run.config.model.max_context, run.config.train.seed
    entries = await asyncio.to_thread(read_all, run.project, warmup, stage.chat, context)
    each = updates_of(len(entries), warmup.batch_size, 1)
    losses: list[float] = []
    quiet, policy.on_progress = policy.on_progress, lambda done, total: None
    for epoch in range(warmup.epochs):
        weighted = tokens = 0.0
        for number in range(epoch * each + 1, (epoch + 1) * each + 1):
            part = batch_at(entries, number, warmup.batch_size, seed, "warmup")
            metrics = await update(policy, part, warmup.lr)
            weighted += metrics["loss"] * metrics["tokens/trained"]
            tokens += metrics["tokens/trained"]
            words = f"epoch {epoch + 1} of {warmup.epochs}"
            run.tick(0, "warming_up", number, each * warmup.epochs, words)
        losses.append(weighted / tokens)
    policy.on_progress = quiet
    await policy.optim_reset()
    seconds = time.monotonic() - start_s
    await run.say(WarmupFinished(examples=len(entries), losses=losses, seconds=seconds))


def read_all(project: Path, warmup: WarmupConfig, chat: ChatFormat, context: int) -> list[Entry]:
    """Read all demonstrations for a warm-up, each of at most `context` tokens. Raises ConfigError
    for bad lines, or if there are none."""
    sources = [
        read_source(file, "train", project, chat, context)
        for file in demonstration_files(project, warmup)
    ]
    files = [source.file for source in sources]
    if problem := refusal(files, skip=False, hint="Fix these lines, or remove them from the file."):
        raise ConfigError(problem)
    entries = [entry for source in sources for entry in source.entries]
    if not entries:
        raise ConfigError.of(
            "demonstrations.empty",
            "There are no demonstrations to warm up on.",
            "Write demonstrations, or set train.warmup.file.",
            where=str(project / warmup.file),
        )
    return entries


def demonstration_files(project: Path, warmup: WarmupConfig) -> list[Path]:
    """Return the demonstration file of the project, and gold.jsonl if it exists and is enabled."""
    files = [project_file(project, warmup.file, "train.warmup.file")]
    gold = project_file(project, GOLD, GOLD)
    return files + ([gold] if warmup.gold and gold.is_file() and gold not in files else [])


async def fine_tune(run: Run, policy: Policy, chat: ChatFormat) -> None:
    """Train an SFT run to its last update, until early stopping, or until a stop is requested.
    Raises errors of the workers and of the store."""
    start_s, step = time.monotonic(), 0
    policy.on_progress = lambda done, total: None
    await load(run, policy)
    context = run.config.model.max_context
    learned, held_out = await asyncio.to_thread(stored_examples, run.folder, chat, context)
    history = finished_steps(run)
    found = await restore(run, policy)
    step = found.step if found else 0
    plan = run.spec.supervised
    if plan and plan.skipped and not history:
        words = f"{plan.skipped} invalid lines are skipped (sft.skip_bad_lines)."
        await run.log("warning", "sft", words)
    validation = await measure(run, policy, held_out, step)
    if validation and step == 0:  # where the loss only rises, it stays the best
        await save_checkpoint(run, policy, step, validation)
    await run.enter(step, "training")
    early = is_out_of_patience(run, step)
    try:
        while step < run.orders.steps and not early:
            await wait_while_paused(run, policy, step)
            step += 1
            metrics = await learn(run, policy, learned, step)
            if step not in history:
                await say_step(run, step, metrics)
            if is_due(run, step):
                validation = await measure(run, policy, held_out, step)
                await save_checkpoint(run, policy, step, metrics | validation)
                early = is_out_of_patience(run, step)
                await run.enter(step, "training")
    except StopRequested:
        await save_checkpoint(run, policy, step, history.get(step, {}))
        await run.say(RunStopped(step=step, reason="You stopped the run after this update."))
        return
    if early:
        await run.log("info", "sft", "The held-out loss no longer falls: the run ends early.")
    await prune(run)
    await run.say(summary(run, step, time.monotonic() - start_s))


# The stages


async def learn(run: Run, policy: Policy, learned: list[Entry], step: int) -> dict[str, float]:
    """Make update `step` on a batch of the training entries (`learned`) and return its metrics."""
    start_s, sft = time.monotonic(), run.config.sft
    plan = run.spec.updates
    part = batch_at(learned, step, sft.batch_size, run.config.train.seed, "sft")
    lr = rate_at(step, plan, sft.lr, sft.schedule, sft.warmup_share)
    metrics = await update(policy, part, lr)
    seconds = max(time.monotonic() - start_s, 1e-9)
    rate = metrics["tokens/trained"] / seconds
    epoch = step / updates_of(len(learned), sft.batch_size, 1)
    words = f"epoch {math.ceil(epoch)} of {sft.epochs}"
    run.tick(step, "training", step, plan, words, tokens_per_s=rate)
    return {**metrics, "epoch": epoch, "tokens_per_s/train": rate, "time_s/step": seconds}


async def say_step(run: Run, step: int, metrics: dict[str, float]) -> None:
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    dropped = len(metrics) - len(finite)
    await run.say(StepFinished(step=step, metrics=finite, dropped=dropped))


async def measure(run: Run, policy: Policy, held_out: list[Entry], step: int) -> dict[str, float]:
    """Measure and store the loss on held-out entries after update `step`, unless it is stored
    already. Returns it as a metric; empty if nothing is held out."""
    if not held_out:
        return {}
    known = measured(run).get(step)
    if known is None:
        start_s = time.monotonic()
        await run.enter(step, "validating")
        known, tokens = await loss_on(policy, held_out)
        seconds, count = time.monotonic() - start_s, len(held_out)
        event = LossMeasured(step=step, loss=known, tokens=tokens, examples=count, seconds=seconds)
        await run.say(event)
    return {"validation/loss": known}


# What the stages are made of


def is_due(run: Run, step: int) -> bool:
    """Whether to measure the loss and save a checkpoint after update `step`: at the interval
    `sft.validate_every`, after the last update, or on a person's request, which this call
    clears."""
    wanted, run.orders.keep = run.orders.keep, False
    return wanted or step % run.config.sft.validate_every == 0 or step == run.orders.steps


def measured(run: Run) -> dict[int, float]:
    """Return the stored held-out losses by step."""
    events = run.reader.events_of("loss.measured")
    return {e.step: e.loss for e in events if isinstance(e, LossMeasured)}


def is_out_of_patience(run: Run, step: int) -> bool:
    """Whether early stopping applies after update `step`: none of the last `sft.patience` held-out
    losses is lower than the best one before them."""
    losses = [loss for at, loss in sorted(measured(run).items()) if at <= step]
    return exceeds_patience(losses, run.config.sft.patience)


def summary(run: Run, step: int, seconds: float) -> RunFinished:
    losses, known = measured(run), run.reader.checkpoints()
    best = min(losses, key=lambda at: (losses[at], at), default=None)
    return RunFinished(
        step=step,
        seconds=seconds,
        checkpoint=known[-1].path if known else "",
        loss_first=losses.get(0),
        loss_best=None if best is None else losses[best],
        loss_step=best or 0,
    )
