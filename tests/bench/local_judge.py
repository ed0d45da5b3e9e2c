"""Agreement of the local judge with a rule.

`python -m tests.bench.local_judge [--drive SEED]`

Trains a sample with its rule on the starter model, or reads such a run (--run FOLDER). Of the
groups with different rewards, 60 are labelled by the rule; the judge is fitted on these and orders
the pairs of 20 others: first in order of time, then four random splits. With --drive two more runs
follow, one with the rule and one with advantages from the local judge, fitted on the first 60
groups of the first run; the printed rewards are the rule's.
"""

import argparse
import asyncio
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.client import EngineClient
from engine.judge.local_judge import LocalJudge, Preference, preferences_of_scores
from engine.launcher.local import find
from engine.models.registry import find_model
from engine.policy.base import PolicySpec
from engine.policy.worker import TorchPolicy
from engine.protocol.config.algorithm import GroupMean
from engine.protocol.config.project import ModelConfig
from engine.protocol.events.run import RunFailed, RunFinished, StepFinished, ValidationFinished
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import StartRun
from engine.reward.advantage.group import advantages
from engine.storage.run_db.reader import RunReader
from engine.storage.samples import create_project

STARTER = "smollm2-135m-instruct"
FITTED, HELD_OUT = 60, 20
SHUFFLES = 4

Groups = list[list[Trajectory]]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", default="hello")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help="a run folder, instead of a new run")
    parser.add_argument("--drive", type=int, metavar="SEED", help="also train by the judge")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace, sample = Path(folder), arguments.sample
        run = arguments.run or (await train(workspace / "a", sample, arguments.seed))[0]
        groups = groups_of(run)
        await measure(groups, workspace / "policy.log")
        if arguments.drive is not None:
            _, ruled = await train(workspace / "b", sample, arguments.drive)
            _, judged = await train(workspace / "c", sample, arguments.drive, labels=run)
            share = (judged[-1] - judged[0]) / (ruled[-1] - ruled[0])
            print(f"the judge's run reaches {share:.0%} of the rule's gain in validation")


async def train(
    workspace: Path, sample: str, seed: int, labels: Path | None = None
) -> tuple[Path, list[float]]:
    """Train the sample; return the run folder and the validation rewards."""
    create_project(workspace / sample, sample)
    command = [sys.executable, "-m", "tests.bench.local_judge_engine", str(workspace)]
    command += [str(labels)] if labels else []
    engine = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220
    assert engine.stdout is not None
    engine.stdout.readline()
    endpoint = await find(workspace)
    assert endpoint is not None
    rewards, held_out = [], []
    async with EngineClient(endpoint.port, endpoint.token) as client:
        request = StartRun(project=str(workspace / sample), overrides={"train.seed": seed})
        run = await client.start_run(request)
        async for event in client.events(run.id):
            if isinstance(event, StepFinished):
                rewards.append(event.metrics["reward/mean"])
            if isinstance(event, ValidationFinished) and event.reward:
                held_out.append(event.reward.mean)
            if isinstance(event, RunFailed):
                sys.exit(str(event.problem))
            if isinstance(event, RunFinished):
                break
        await client.shut_down()
    engine.wait()
    words = f"{sample} by {'the local judge' if labels else 'the rule'}, seed {seed}"
    curve, validation = (" ".join(f"{x:.2f}" for x in values) for values in (rewards, held_out))
    print(f"{words}: {curve}  validation {validation}", flush=True)
    return Path(run.path), held_out


def groups_of(run: Path) -> Groups:
    """Return all training groups in order of time."""
    reader = RunReader(run / "run.db")
    groups: dict[tuple[int, int], list[Trajectory]] = {}
    step = 1
    while stored := reader.stored("train", step):
        for one in stored:
            groups.setdefault((one.step, one.group), []).append(one)
        step += 1
    reader.close()
    return list(groups.values())


def groups_with_signal(groups: Groups) -> Groups:
    return [group for group in groups if len({one.reward for one in group}) > 1]


async def start_policy(log: Path) -> TorchPolicy:
    policy = await TorchPolicy.start(log, STARTER)
    spec = PolicySpec(
        model_path=str(find_model(STARTER)), model=ModelConfig(), seed=0, batch_tokens=2048
    )
    await policy.load(spec)
    return policy


async def measure(groups: Groups, log: Path) -> None:
    policy = await start_policy(log)
    try:
        judge = LocalJudge(policy)
        informative = groups_with_signal(groups)
        print(f"{len(groups)} groups, {len(informative)} of them differ", flush=True)
        await compare("in time", judge, informative, groups)
        for number in range(SHUFFLES):
            shuffled = random.Random(number).sample(informative, len(informative))
            await compare(f"by chance {number}", judge, shuffled, groups)
        await score_separately(policy, judge, informative[-1])
    finally:
        await policy.close()


async def compare(words: str, judge: LocalJudge, chosen: Groups, groups: Groups) -> None:
    """Fit on the first groups and order the pairs of the next.

    Then compare the advantages of all unlabelled groups with the rule's: the cosine of both
    vectors.
    """
    started_at = time.monotonic()
    fitted = chosen[: min(FITTED, len(chosen) - HELD_OUT)]
    held_out = chosen[len(fitted) :][:HELD_OUT]
    accuracy = await judge.fit(preferences_by_rule(fitted))
    seconds = time.monotonic() - started_at
    assert accuracy is not None
    right = pairs = 0.0
    for group in held_out:
        scores = await scores_of(judge, group)
        for better, worse, _ in preferences_by_rule([group]):
            gap = scores[better.id] - scores[worse.id]
            right, pairs = right + (gap > 0) + (gap == 0) / 2, pairs + 1
    others = [group for group in groups if group not in fitted]
    cosine = await agreement(judge, others)
    print(
        f"{words}: fitted on {len(fitted)} groups in {seconds:.1f} s, {accuracy.share:.3f} of "
        f"{accuracy.pairs} pairs out of fold; {right / pairs:.3f} of {pairs:.0f} pairs in "
        f"{len(held_out)} other groups; cosine of advantages {cosine:.3f} in {len(others)} others",
        flush=True,
    )


def preferences_by_rule(groups: Groups) -> list[Preference]:
    attempts = [one for group in groups for one in group]
    return preferences_of_scores(attempts, {one.id: one.reward for one in attempts})


async def scores_of(judge: LocalJudge, group: list[Trajectory]) -> dict[str, float]:
    verdicts = await judge.judge(group)
    return {v.trajectory_id: v.score for v in verdicts if v.score is not None}


async def agreement(judge: LocalJudge, groups: Groups) -> float:
    ours: list[float] = []
    theirs: list[float] = []
    for group in groups:
        scores = await scores_of(judge, group)
        for values, group_rewards in (
            (theirs, [one.reward for one in group]),
            (ours, scores.values()),
        ):
            values += [value or 0.0 for value in advantages(GroupMean(), list(group_rewards))]
    dot = math.fsum(a * b for a, b in zip(ours, theirs, strict=True))
    return dot / (math.hypot(*ours) * math.hypot(*theirs))


async def score_separately(policy: TorchPolicy, judge: LocalJudge, group: list[Trajectory]) -> None:
    """Measure how much scores change when trajectories are judged separately, and the time per
    group.
    """
    together = await scores_of(judge, group)
    judge._features.clear()
    started_at = time.monotonic()
    await judge.judge(group)
    seconds = time.monotonic() - started_at
    judge._features.clear()
    changes = [abs((await scores_of(judge, [one]))[one.id] - together[one.id]) for one in group]
    print(
        f"judged separately, scores change by {max(changes):.4f} at most; "
        f"a group takes {seconds:.2f} s"
    )


if __name__ == "__main__":
    asyncio.run(main())
