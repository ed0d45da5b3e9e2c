"""Training loop, top to bottom: scenario → rollout → reward → advantage → train → checkpoint.

Input: an open run, a started policy, a stage for rollouts. Output: events and rows, through the
run. The server starts it, restarts it after a worker's death, and stores how it ended.

An interrupted run resumes from its last checkpoint: later steps are trained again on their stored
trajectories, and only missing rollouts are made, so a resumed run and an uninterrupted one give the
same adapter.
"""

import math
import time
from collections.abc import Awaitable, Iterable
from itertools import chain

from engine.evaluation.pairwise import validations_of
from engine.evaluation.validation import validate
from engine.policy.base import Policy
from engine.protocol.config.alerts import conditions_of
from engine.protocol.events.progress import validation_results
from engine.protocol.events.run import (
    AlertsChanged,
    DiagnosisChanged,
    RunFinished,
    RunStopped,
    StepFinished,
    StepStarted,
)
from engine.protocol.problems import RolloutError
from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.runs import Interval, Trajectory
from engine.rollout.groups import roll_out_groups
from engine.rollout.rollout import Stage
from engine.storage.checkpoints.retention import prune
from engine.storage.project import load_scenarios
from engine.storage.run_folder.run import Run
from engine.training import diagnosis
from engine.training.alerts import alerts
from engine.training.lifecycle import (
    StopRequested,
    finished_steps,
    load,
    restore,
    save_checkpoint,
    wait_while_held,
    wait_while_paused,
)
from engine.training.sft.loop import warm_up
from engine.training.sft.schedule import exceeds_patience
from engine.training.step.curriculum_history import CurriculumHistory
from engine.training.step.dynamic_sampling import planned, replace_groups_without_signal
from engine.training.step.metrics import Clock, step_metrics
from engine.training.step.review import review
from engine.training.step.rollouts import Groups, Rollouts, staleness
from engine.training.step.scenario_sampling import choose
from engine.training.step.update import learn
from engine.training.step.update_groups import close_batch

EARLY = "Validations no longer improve (train.patience): the run ends early."
UNSCORED_STEPS = 3
"""Number of consecutive steps without a scored rollout after which the run fails."""


async def train(run: Run, policy: Policy, stage: Stage) -> None:
    """Train to the last step, until early stopping, or until a stop is requested. Raises
    RolloutError if no rollout is scored for several steps, and errors of the workers and of the
    store."""
    start_s = time.monotonic()
    scenarios = load_scenarios(run.project, run.config, "train")
    held_out = load_scenarios(run.project, run.config, "validation")
    practised = CurriculumHistory(run, scenarios)
    policy.on_progress = lambda done, total: run.tick(step, "training", done, total)
    step = silent = 0
    await load(run, policy)
    history = finished_steps(run)
    step = await restore_or_warm_up(run, policy, stage)

    def roll(number: int, clock: Clock) -> Awaitable[Groups]:
        return roll_out_step(run, stage, number, practised, clock, number not in history)

    try:
        async with Rollouts(run, roll) as rollouts:
            while step < run.orders.steps:
                await wait_while_paused(run, policy, step)
                if validation_is_due(run, step):
                    await validate(run, stage, held_out, step)
                    await say_alerts(run, step, history)
                    if stops_early(run, step):
                        await run.log("info", "train", EARLY)
                        break
                    await wait_while_held(run, step)
                step += 1
                clock = Clock()
                anew = step not in history
                groups = await rollouts.of(step, clock)
                sampled = await policy.sampling()
                if anew:
                    await review(run, step, clock)
                groups, again = await close_batch(run, step, groups)
                learned = await learn(run, policy, stage.images, groups + again, step, clock)
                config = run.config.train
                extra_metrics = {"groups/again": float(len(again)), **sampled, **learned}
                extra_metrics |= {"staleness": staleness(step, groups)} if config.staleness else {}
                extra_metrics |= stage.judge.metrics() if stage.judge else {}
                metrics = step_metrics(groups, config.algorithm.advantage, extra_metrics, clock)
                if anew:
                    await finish_step(run, step, metrics, learned, history, groups)
                    silent = 0 if "reward/mean" in metrics else silent + 1
                    if silent == UNSCORED_STEPS or silent == step == run.orders.steps:
                        refuse_unscored(reward_range(step, silent), chain(*groups))
                if checkpoint_is_due(run, step):
                    await save_checkpoint(run, policy, step, metrics)
    except StopRequested:
        await save_checkpoint(run, policy, step, history.get(step, {}))
        await run.say(RunStopped(step=step, reason=run.orders.stop_reason))
        return
    await save_checkpoint(run, policy, step, history.get(step, {}))
    await validate(run, stage, held_out, step)
    await say_alerts(run, step, history)
    await prune(run)
    await run.say(summary(run, step, history, time.monotonic() - start_s))


async def measure_baseline(run: Run, policy: Policy, stage: Stage) -> None:
    """Measure and store the mean reward of the untrained model on the training scenarios. Raises
    RolloutError if no rollout could be scored."""
    start_s = time.monotonic()
    scenarios = load_scenarios(run.project, run.config, "train")
    await load(run, policy)
    await policy.publish(0)
    if await validate(run, stage, scenarios, 0) is None:
        refuse_unscored("the baseline", run.reader.stored("validation", 0))
    await run.say(summary(run, 0, {}, time.monotonic() - start_s))


# The stages


async def restore_or_warm_up(run: Run, policy: Policy, stage: Stage) -> int:
    """Restore the newest checkpoint, or else warm up if configured. Returns the steps done."""
    if found := await restore(run, policy):
        await policy.publish(found.step)
        return found.step
    if warmup := run.config.train.warmup:
        await warm_up(run, policy, stage, warmup)
        await policy.publish(0)
        await save_checkpoint(run, policy, 0, {})
        return 0
    await policy.publish(0)
    return 0


def validation_is_due(run: Run, step: int) -> bool:
    every = run.config.train.validate_every
    return step == 0 or bool(every and step % every == 0)


def stops_early(run: Run, step: int) -> bool:
    """Whether the last `train.patience` validations are no better than an earlier one. A run that
    was extended after its end continues at least to its next validation."""
    done = [one for one in validations_of(run) if one.step <= step]
    means = {at: result.mean for at, result in validation_results(done).items()}
    if done and done[-1].win_rates:
        means = {done[0].step: EQUAL, **means}
    if not exceeds_patience([-means[at] for at in sorted(means)], run.config.train.patience):
        return False
    finished = run.reader.events_of("run.finished")
    return not any(isinstance(one, RunFinished) and one.step == step for one in finished)


def checkpoint_is_due(run: Run, step: int) -> bool:
    wanted, run.orders.keep = run.orders.keep, False
    return wanted or step % run.config.train.checkpoint_every == 0 or step == run.orders.steps


async def roll_out_step(
    run: Run, stage: Stage, step: int, practised: CurriculumHistory, clock: Clock, anew: bool
) -> Groups:
    size = run.config.train.group_size
    choice = practised.choice(step)
    chosen = choose(choice, run.config.train.groups)
    if anew:
        await run.say(StepStarted(step=step, groups=planned(chosen, size)))
    async with clock.phase(run, step, "rolling_out"):
        if stage.judge:
            await stage.judge.prepare()
        groups = await roll_out_groups(run, stage, "train", step, chosen, size)
        return await replace_groups_without_signal(run, stage, choice, chosen, groups, anew)


async def finish_step(
    run: Run,
    step: int,
    metrics: dict[str, float],
    learned: dict[str, float],
    history: dict[int, dict[str, float]],
    groups: Groups,
) -> None:
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    history[step] = finite
    await run.say(
        StepFinished(
            step=step,
            skipped=not learned,
            reason="" if learned else skip_reason(metrics),
            metrics=finite,
            dropped=len(metrics) - len(finite),
        )
    )
    train = run.config.train
    ordered = [history[number] for number in sorted(history)]
    limit = 0 if run.spec.kind == "outside" else train.max_tokens
    causes = diagnosis.unscored_causes(chain(*groups))
    validations = validations_of(run)
    found = diagnosis.findings(ordered, train.group_size, limit, causes, validations)
    previous = [
        e for e in run.reader.events_of("diagnosis.changed") if isinstance(e, DiagnosisChanged)
    ]
    if found != (previous[-1].findings if previous else []):
        await run.say(DiagnosisChanged(step=step, findings=found))
    await say_alerts(run, step, history)


async def say_alerts(run: Run, step: int, history: dict[int, dict[str, float]]) -> None:
    """Store an event with the conditions of `alerts.when` that hold after a step or its validation,
    if they are not the same as before."""
    validations = validations_of(run)
    found = alerts(conditions_of(run.config.alerts.when), history, validations)
    stored = [e for e in run.reader.events_of("alerts.changed") if isinstance(e, AlertsChanged)]
    before = stored[-1].alerts if stored else []
    if [one.condition for one in found] != [one.condition for one in before]:
        await run.say(AlertsChanged(step=step, alerts=found))


def skip_reason(metrics: dict[str, float]) -> str:
    """Reason why a step with these metrics has no gradient, as a sentence."""
    if metrics["unscored"] == metrics["trajectories"]:
        return "No rollout could be scored, so there is no gradient."
    return "All rollouts of each group got the same reward, so there is no gradient."


def reward_range(step: int, count: int) -> str:
    return f"steps {step - count + 1} to {step}" if count > 1 else f"step {step}"


def refuse_unscored(steps: str, trajectories: Iterable[Trajectory]) -> None:
    """Raise RolloutError with the most frequent problem of `trajectories`, none of which has a
    score (the caller has checked this). `steps` names them in the message. Returns if their only
    problem is that a person excluded them."""
    causes = diagnosis.unscored_causes(trajectories)
    if not causes:  # a person took them out
        return
    raise RolloutError.of(
        "run.nothing_scored",
        f"No rollout of {steps} could be scored. {causes[0].problem.message}",
        causes[0].problem.hint or "Read the output of a rollout, fix the cause, and resume.",
        where=causes[0].problem.where,
        detail="\n".join(f"{c.rollouts} × {c.problem.code}: {c.problem.message}" for c in causes),
    )


# What the stages are made of


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
        win_rate=win_rate_at(run, step),
        checkpoint=known[-1].path if known else "",
    )


def validation_at(run: Run, step: int) -> Interval | None:
    return next((one.reward for one in validations_of(run) if one.step == step), None)


def win_rate_at(run: Run, step: int) -> Interval | None:
    known = validations_of(run)
    return next((one.win_rates.get(step) for one in known if one.step == step), None)
