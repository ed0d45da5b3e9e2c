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
from engine.rollout.images import RunImages
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

WAITING = "waiting for the script's rollouts"


class ScriptLeft(Exception):
    """Raised in the training loop when the script has closed its run or its process has ended."""


async def train(run: Run, policy: Policy, chat: ChatFormat, session: ScriptSession) -> None:
    """Train on the script's submissions until the script leaves or the user stops the run. Raises
    errors of the workers and of the store."""
    start_s = time.monotonic()
    session.sessions.images = RunImages(chat, run.folder, run.config.model.max_context)
    policy.on_progress = lambda done, total: run.tick(step + 1, "training", done, total)
    session.sessions.shut()
    async with watch_script(session):
        await load(run, policy)
        history = finished_steps(run)
        found = await restore(run, policy)
        step = found.step if found else 0
        await policy.publish(step)
        while submission := session.files.read(step + 1):
            step = await train_submission(run, policy, session, submission, Clock(), history)
        try:
            while True:
                session.sessions.open(chat, policy, step)
                session.open(run, chat, step)
                await wait_while_paused(run, policy, step)
                clock = Clock()
                submission = await next_groups(run, policy, session, step)
                clock.phases["rolling_out"] = time.monotonic() - clock.start_s
                step = await train_submission(run, policy, session, submission, clock, history)
        except StopRequested:
            await save_checkpoint(run, policy, step, history.get(step, {}))
            await run.say(RunStopped(step=step, reason="You stopped the run after this step."))
        except ScriptLeft:
            await save_checkpoint(run, policy, step, history.get(step, {}))
            await run.say(final_event(run, session, step, history, time.monotonic() - start_s))


async def next_groups(run: Run, policy: Policy, session: ScriptSession, step: int) -> Submission:
    """Wait for the script's submission for step `step` + 1; it stays first in `session.waiting`.
    Raises StopRequested if the user stops the run, ScriptLeft if the script closes it or ends."""
    await run.enter(step + 1, "rolling_out")
    run.tick(step + 1, "rolling_out", 0, 0, WAITING)
    while not session.waiting:
        run.orders.changed.clear()
        if session.left:
            raise ScriptLeft
        if run.orders.stop_after_step or run.orders.paused:
            await wait_while_paused(run, policy, step)
            await run.enter(step + 1, "rolling_out")
            continue
        await run.orders.changed.wait()
    await wait_while_paused(run, policy, step)
    return session.waiting[0]


async def train_submission(
    run: Run,
    policy: Policy,
    session: ScriptSession,
    submission: Submission,
    clock: Clock,
    history: dict[int, dict[str, float]],
) -> int:
    """Store the submitted groups, make the update, save a checkpoint if requested, and answer the
    script. Returns the step. `history` has the metrics of finished steps, to which this one is
    added."""
    step, anew = submission.step, submission.step not in history
    run.config = submission.over(run.spec.config)
    if anew:
        await run.say(StepStarted(step=step, groups=planned_groups(submission.groups)))
        await log_settings(run, submission)
        if submission.dropped:
            await run.log("warning", "script", dropped_words(step, submission.dropped))
    groups = await store(run, submission)
    sampled = await policy.sampling()
    if anew:
        await review(run, step, clock)
    groups, again = await close_batch(run, step, groups)
    learned = await learn(run, policy, session.sessions.images, groups + again, step, clock)
    extra_metrics = {"groups/again": float(len(again)), **sampled, **learned}
    extra_metrics["staleness"] = staleness(step, groups)
    metrics = step_metrics(groups, run.config.train.algorithm.advantage, extra_metrics, clock)
    if anew:
        await finish_step(run, step, metrics, learned, history, groups)
    if submission.save or run.orders.keep:
        run.orders.keep = False
        await save_checkpoint(run, policy, step, metrics)
        session.files.forget_until(step)
    await prune(run)
    session.known.forget_before(step)
    if session.waiting and session.waiting[0].key == submission.key:
        session.waiting.popleft()
    session.sessions.step = step
    session.answer(submission.key, trained_before(run, submission))
    await session.known.compact()
    return step


async def store(run: Run, submission: Submission) -> list[list[Trajectory]]:
    """Store the submitted groups, unless stored before. Returns them with advantages."""
    known = {one.id for one in run.reader.stored("train", submission.step)}
    groups = []
    for siblings in submission.groups:
        for one in siblings:
            if one.id not in known:
                await run.writer.add_trajectory(one)
        groups.append(await close_group(run, None, siblings))
    return groups


async def log_settings(run: Run, submission: Submission) -> None:
    """Log learning rate and algorithm of a submission, if they differ from those of the run."""
    defaults = run.spec.config.train
    if (submission.lr, submission.algorithm) == (defaults.lr, defaults.algorithm):
        return
    changed = submission.algorithm.model_dump_json(exclude_defaults=True)
    text = f"Step {submission.step}: the script set lr {submission.lr:g} and algorithm {changed}."
    await run.log("info", "script", text)


def final_event(
    run: Run, session: ScriptSession, step: int, history: dict[int, dict[str, float]], wall_s: float
) -> RunFinished | RunStopped:
    assert session.left is not None
    reason, finished = session.left
    return summary(run, step, history, wall_s) if finished else RunStopped(step=step, reason=reason)
