"""Stages of every training run: load the model, restore it, wait while paused, save checkpoints.
Called by `loop.py` and `sft/loop.py`."""

import asyncio

from engine.models.registry import model_of
from engine.policy.base import Policy
from engine.policy.start import loaded, policy_spec
from engine.policy.tinker.refusals import require_pinned
from engine.protocol.config.algorithm import ValueCredit
from engine.protocol.events.run import RunContinued, RunPaused, StepFinished
from engine.protocol.problems import StoreError
from engine.protocol.records.runs import Checkpoint
from engine.runtime.seeds import derive
from engine.storage.checkpoints import checkpoint
from engine.storage.checkpoints.branches import compare_with_parent
from engine.storage.checkpoints.retention import drop, prune
from engine.storage.run_folder.run import Run

SHOWN = ("reward/mean", "loss", "validation/loss")
"""Metrics stored with a checkpoint."""


class StopRequested(Exception):
    """The user requested a stop after this step."""


async def load(run: Run, policy: Policy) -> None:
    await run.enter(0, "loading")
    config, model = run.config, model_of(run.spec)
    spec = policy_spec(config, model, config.model, derive(config.train.seed, "adapter") % 2**31)
    if isinstance(credit := config.train.algorithm.credit, ValueCredit):
        spec = spec.model_copy(update={"value_lr": credit.lr})
    info = await policy.load(spec)
    await run.say(loaded(info))
    if info.cluster is not None:
        require_pinned(info.cluster, config.train.staleness)
        await run.log("info", "policy", f"{info.cluster.name}: {info.cluster.words}.")
    elif not info.shares_prefixes:
        await run.log(
            "warning",
            "policy",
            f"Prompts are not shared between trajectories, since {info.unshared_reason}. Training "
            "is exact, but much slower.",
        )
    if info.frozen_experts:
        await run.log(
            "info",
            "policy",
            "The adapter covers the attention layers of this mixture of experts; its routers and "
            "feed-forward layers are not trained.",
        )
    if info.adapted_experts:
        await run.log(
            "info",
            "policy",
            "The adapter covers the attention layers and the routed experts of this mixture of "
            "experts; its routers and other feed-forward layers are not trained.",
        )
    if info.peak_flops:
        await run.log(
            "info",
            "policy",
            f"Peak rates of this machine: {info.peak_flops / 1e9:,.0f} GFLOP/s in {info.dtype}, "
            f"{info.bandwidth / 1e9:.0f} GB/s memory read. Utilization refers to these rates.",
        )


async def restore(run: Run, policy: Policy) -> Checkpoint | None:
    """Load the newest undamaged checkpoint of the run into the policy and return it; None if there
    is none. Records of later, damaged ones are removed, so that their steps are saved again. Raises
    StoreError if the initial weights of a branch are missing."""
    known = run.reader.checkpoints()
    await asyncio.to_thread(checkpoint.sweep, run.folder, known)
    found = await asyncio.to_thread(checkpoint.newest, run.folder, known)
    if found is None:
        _refuse_other_beginning(run)
    for damaged in [one for one in known if found is None or one.step > found.step]:
        where = f"after step {found.step}" if found else "from the beginning"
        text = f"The checkpoint of step {damaged.step} is damaged: the run resumes {where}."
        await run.log("warning", "checkpoint", text)
        await drop(run, damaged, "damage")
    if found:
        await policy.restore(run.folder / found.path)
    return found


def _refuse_other_beginning(run: Run) -> None:
    """Raise StoreError for a branch without its initial weights."""
    parent = run.spec.parent
    if parent and parent.adapter:
        raise StoreError.of(
            "checkpoint.no_beginning",
            f"This run started from weights of {parent.name}, which are missing or damaged, and "
            "has no checkpoint of its own.",
            f"Branch from {parent.name} again.",
            where=str(checkpoint.folder_of(run.folder, parent.begins)),
        )


async def wait_while_paused(run: Run, policy: Policy, step: int) -> None:
    """Wait between steps while the run is paused; sampling for later steps pauses, too. Raises
    StopRequested if a stop is requested, before or during the pause."""
    if run.orders.stop_after_step:
        raise StopRequested
    if not run.orders.paused:
        return
    await run.say(RunPaused(step=step))
    await policy.hold()
    await run.orders.until(lambda: run.orders.stop_after_step or not run.orders.paused)
    if run.orders.stop_after_step:
        raise StopRequested
    await policy.go_on()
    await run.say(RunContinued(step=step))


async def wait_while_held(run: Run, step: int) -> None:
    """Wait after a validation until the run's sweep lets it continue. Raises StopRequested if it
    does not; returns at once for a run without a sweep."""
    orders = run.orders
    if step in orders.holds:
        await orders.until(lambda: orders.stop_after_step or step not in orders.holds)
        if orders.stop_after_step:
            raise StopRequested


async def save_checkpoint(run: Run, policy: Policy, step: int, metrics: dict[str, float]) -> None:
    """Save a checkpoint of `step` with its main `metrics`, then delete those that the run's
    retention settings do not keep. No effect if the step has a checkpoint already."""
    if any(known.step == step for known in run.reader.checkpoints()):
        return
    shown = {name: metrics[name] for name in SHOWN if name in metrics}
    saved = await checkpoint.save(run.folder, step, policy, {"run": run.spec.id}, shown)
    await run.writer.add_checkpoint(saved)
    await compare_with_parent(run, saved)
    await prune(run)


def finished_steps(run: Run) -> dict[int, dict[str, float]]:
    events = run.reader.events_of("step.finished")
    return {e.step: e.metrics for e in events if isinstance(e, StepFinished)}
