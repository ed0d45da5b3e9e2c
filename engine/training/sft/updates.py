"""Supervised updates, held-out loss, and the warm-up of an RL run."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from engine.policy.base import AdamStep, Policy, ScoreBatch, TrainBatch, TrainItem
from engine.protocol.config.project import WarmupConfig
from engine.protocol.events.sft import WarmupFinished
from engine.protocol.problems import ConfigError
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rollout import Stage
from engine.storage.run_folder.run import Run
from engine.training.labels.gold import FILE as GOLD
from engine.training.sft.data import Entry, read_source, refusal
from engine.training.sft.schedule import batch_at, updates_of
from engine.training.step.batch import trained_tokens
from engine.trust.files import project_file


async def update(policy: Policy, entries: Sequence[Entry], lr: float) -> dict[str, float]:
    """Make one optimizer step. The loss is the mean over all trained tokens, in nats; the metrics
    have their number as `tokens/trained`."""
    items = items_of(entries)
    count = sum(map(trained_tokens, items))
    batch = TrainBatch(items=items, objective="supervised", normaliser=count)
    told = await policy.forward_backward(batch) | await policy.optim_step(AdamStep(lr=lr))
    return {**told, "lr": lr, "tokens/trained": float(count)}


async def loss_on(policy: Policy, entries: Sequence[Entry]) -> tuple[float, int]:
    """(mean loss per trained token in nats, number of trained tokens); no update is made."""
    scores = await policy.score(ScoreBatch(items=items_of(entries)))
    count = sum(len(said.logprobs) for said in scores)
    return -sum(sum(said.logprobs) for said in scores) / count, count


def items_of(entries: Sequence[Entry]) -> list[TrainItem]:
    return [item for entry in entries for item in entry.items]


async def warm_up(run: Run, policy: Policy, stage: Stage, warmup: WarmupConfig) -> None:
    """Supervised epochs over the demonstrations, in a shuffled order of our own seed."""
    begun = time.monotonic()
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
            told = await update(policy, part, warmup.lr)
            weighted += told["loss"] * told["tokens/trained"]
            tokens += told["tokens/trained"]
            words = f"epoch {epoch + 1} of {warmup.epochs}"
            run.tick(0, "warming_up", number, each * warmup.epochs, words)
        losses.append(weighted / tokens)
    policy.on_progress = quiet
    await policy.optim_reset()
    seconds = time.monotonic() - begun
    await run.say(WarmupFinished(examples=len(entries), losses=losses, seconds=seconds))


def read_all(project: Path, warmup: WarmupConfig, chat: ChatFormat, context: int) -> list[Entry]:
    """Raises ConfigError with the lines that do not read, and where there are none."""
    sources = [
        read_source(file, "train", project, chat, context)
        for file in demonstration_files(project, warmup)
    ]
    files = [source.file for source in sources]
    if problem := refusal(files, skip=False, hint="Fix them, or remove them from the file."):
        raise ConfigError(problem)
    entries = [entry for source in sources for entry in source.entries]
    if not entries:
        raise ConfigError.of(
            "demonstrations.empty",
            "There are no demonstrations to warm up on.",
            "Write some, or set train.warmup.file.",
            where=str(project / warmup.file),
        )
    return entries


def demonstration_files(project: Path, warmup: WarmupConfig) -> list[Path]:
    """Demonstration files of the project, and its gold file if there is one."""
    files = [project_file(project, warmup.file, "train.warmup.file")]
    gold = project_file(project, GOLD, GOLD)
    return files + ([gold] if warmup.gold and gold.is_file() and gold not in files else [])
