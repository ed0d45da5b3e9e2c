"""Training loop for rollouts made by a script: groups → advantages → update → checkpoint.

The stages are those of engine/training/loop.py, but clients with the key of the run sample from the
policy, and the run waits for submitted groups. A step that was interrupted before its checkpoint is
trained again from the stored submission.
"""

import time

from engine.integrations.scripts.session import ScriptSession, trained_before, watch_script
from engine.integrations.scripts.submissions import Submission
from engine.integrations.scripts.trajectories import dropped_words
from engine.policy.base import Policy
from engine.protocol.events.run import RunFinished, RunStopped, StepStarted
from engine.protocol.records.runs import Trajectory
from engine.rollout.groups import close_group
from engine.rollout.rendering.chat import ChatFormat
from engine.storage.checkpoints.retention import prune
from engine.storage.run_folder.run import Run
from engine.training.lifecycle import (
    StopRequested,
    finished_steps,
    load,
    restore,
    save_checkpoint,
    wait_while_paused,
)
from engine.training.loop import finish_step, summary
from engine.training.step.metrics import Clock, step_metrics
from engine.training.step.review import review
from engine.training.step.rollouts import staleness
from engine.training.step.update import learn
from engine.training.step.update_groups import close_batch, planned_groups

WAITING = "the script makes its attempts"


class ScriptLeft(Exception):
    """The script has finished or ended."""


async def train(run: Run, policy: Policy, chat: ChatFormat, desk: ScriptSession) -> None:
    """Train until the script leaves or the user stops the run. Raises errors of the workers and of
    the store."""
    begun = time.monotonic()
    policy.on_progress = lambda done, total: run.tick(step + 1, "training", done, total)
    desk.door.shut()
    async with watch_script(desk):
        await load(run, policy)
        history = finished_steps(run)
        found = await restore(run, policy)
        step = found.step if found else 0
        await policy.publish(step)
        while handed := desk.files.read(step + 1):
            step = await train_submission(run, policy, desk, handed, Clock(), history)
        try:
            while True:
                desk.door.open(chat, policy, step)
                desk.open(run, chat, step)
                await wait_while_paused(run, policy, step)
                clock = Clock()
                handed = await next_groups(run, policy, desk, step)
                clock.phases["rolling_out"] = time.monotonic() - clock.begun
                step = await train_submission(run, policy, desk, handed, clock, history)
        except StopRequested:
            await save_checkpoint(run, policy, step, history.get(step, {}))
            await run.say(RunStopped(step=step, reason="You stopped it after this step."))
        except ScriptLeft:
            await save_checkpoint(run, policy, step, history.get(step, {}))
            await run.say(final_event(run, desk, step, history, time.monotonic() - begun))


async def next_groups(run: Run, policy: Policy, desk: ScriptSession, step: int) -> Submission:
    """Wait for the next submission. Raises StopRequested or ScriptLeft."""
    await run.enter(step + 1, "rolling_out")
    run.tick(step + 1, "rolling_out", 0, 0, WAITING)
    while not desk.waiting:
        run.orders.changed.clear()
        if desk.left:
            raise ScriptLeft
        if run.orders.stop_after_step or run.orders.paused:
            await wait_while_paused(run, policy, step)
            await run.enter(step + 1, "rolling_out")
            continue
        await run.orders.changed.wait()
    await wait_while_paused(run, policy, step)
    return desk.waiting[0]


async def train_submission(
    run: Run,
    policy: Policy,
    desk: ScriptSession,
    handed: Submission,
    clock: Clock,
    history: dict[int, dict[str, float]],
) -> int:
    """Store the submitted groups, make the update, and save the checkpoint. Returns the step."""
    step, anew = handed.step, handed.step not in history
    run.config = handed.over(run.spec.config)
    if anew:
        await run.say(StepStarted(step=step, groups=planned_groups(handed.groups)))
        await log_settings(run, handed)
        if handed.dropped:
            await run.log("warning", "script", dropped_words(step, handed.dropped))
    groups = await store(run, handed)
    sampled = await policy.sampling()
    if anew:
        await review(run, step, clock)
    groups, again = await close_batch(run, step, groups)
    learned = await learn(run, policy, groups + again, step, clock)
    told = {"groups/again": float(len(again)), **sampled, **learned}
    told["staleness"] = staleness(step, groups)
    metrics = step_metrics(groups, run.config.train.algorithm.advantage, told, clock)
    if anew:
        await finish_step(run, step, metrics, learned, history, groups)
    if handed.save or run.orders.keep:
        run.orders.keep = False
        await save_checkpoint(run, policy, step, metrics)
        desk.files.forget_until(step)
    await prune(run)
    desk.known.forget_before(step)
    if desk.waiting and desk.waiting[0].key == handed.key:
        desk.waiting.popleft()
    desk.door.step = step
    desk.answer(handed.key, trained_before(run, handed))
    await desk.known.compact()
    return step


async def store(run: Run, handed: Submission) -> list[list[Trajectory]]:
    """Store the submitted groups, unless stored before. Returns them with advantages."""
    known = {one.id for one in run.reader.stored("train", handed.step)}
    groups = []
    for siblings in handed.groups:
        for one in siblings:
            if one.id not in known:
                await run.writer.add_trajectory(one)
        groups.append(await close_group(run, None, siblings))
    return groups


async def log_settings(run: Run, handed: Submission) -> None:
    """Log the learning rate and algorithm of a step, if they differ from those of the run."""
    began = run.spec.config.train
    if (handed.lr, handed.algorithm) == (began.lr, began.algorithm):
        return
    changed = handed.algorithm.model_dump_json(exclude_defaults=True)
    text = f"Step {handed.step} was asked for with lr {handed.lr:g} and {changed}."
    await run.log("info", "script", text)


def final_event(
    run: Run, desk: ScriptSession, step: int, history: dict[int, dict[str, float]], seconds: float
) -> RunFinished | RunStopped:
    assert desk.left is not None
    reason, finished = desk.left
    return (
        summary(run, step, history, seconds) if finished else RunStopped(step=step, reason=reason)
    )
