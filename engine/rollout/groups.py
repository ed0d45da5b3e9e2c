"""Roll out whole groups: each trajectory is stored when it ends, each group when it is complete."""

import asyncio

from engine.judge.panel import GroupJudge
from engine.judge.scoring import judge_group
from engine.protocol.records.runs import Phase, Scenario, Split, Trajectory
from engine.reward.advantage.group import group_summary
from engine.rollout.rollout import RolloutPlace, Stage, roll_out
from engine.storage.run_folder.run import Run


async def roll_out_groups(
    run: Run,
    stage: Stage,
    split: Split,
    step: int,
    scenarios: list[Scenario],
    size: int,
    first: int = 0,
    judge: GroupJudge | None = None,
) -> list[list[Trajectory]]:
    """Roll out one group of `size` rollouts per scenario, with group numbers from `first`; stored
    trajectories are reused. `judge` scores them in place of the stage's. Returns the groups in the
    order of the scenarios, with advantages."""
    judge = judge or stage.judge
    numbers = range(first, first + len(scenarios))
    known = run.reader.stored(split, step)
    stored = {(t.group, t.index): t for t in known if t.group in numbers}
    progress = Progress(run, split, step, numbers, size, len(stored))
    async with asyncio.TaskGroup() as tasks:
        groups = [
            tasks.create_task(
                _group(run, stage, judge, split, step, number, scenario, size, stored, progress)
            )
            for number, scenario in zip(numbers, scenarios, strict=True)
        ]
    return [group.result() for group in groups]


class Progress:
    """Progress of a group rollout, reported as ticks; `words` describes the current activity."""

    def __init__(
        self, run: Run, split: Split, step: int, groups: range, size: int, done: int
    ) -> None:
        self._run, self._step = run, step
        self.words = ""
        self._phase: Phase = "rolling_out" if split == "train" else "validating"
        self._total, self._done = len(groups) * size, done
        self._tokens = 0
        self._in_flight: dict[int, tuple[int, int]] = dict.fromkeys(groups, (0, 0))
        self._start_s = asyncio.get_running_loop().time()

    def add(self, trajectory: Trajectory) -> None:
        done, turns = self._in_flight[trajectory.group]
        self._in_flight[trajectory.group] = (done + 1, turns + trajectory.turns)
        self._done += 1
        self._tokens += trajectory.sampled_tokens
        seconds = max(asyncio.get_running_loop().time() - self._start_s, 1e-6)
        self._run.tick(
            self._step,
            self._phase,
            self._done,
            self._total,
            self.words,
            in_flight=self._in_flight,
            tokens_per_s=self._tokens / seconds,
        )


async def _group(
    run: Run,
    stage: Stage,
    judge: GroupJudge | None,
    split: Split,
    step: int,
    number: int,
    scenario: Scenario,
    size: int,
    stored: dict[tuple[int, int], Trajectory],
    progress: Progress,
) -> list[Trajectory]:
    async def one(index: int) -> Trajectory:
        if known := stored.get((number, index)):
            return known
        place = RolloutPlace(split, step, number, index)
        trajectory = await roll_out(stage, place, scenario, place.seed(run.config.train.seed))
        await run.writer.add_trajectory(trajectory)
        progress.add(trajectory)
        return trajectory

    siblings = list(await asyncio.gather(*(one(index) for index in range(size))))
    return await close_group(run, judge, siblings)


async def close_group(
    run: Run, judge: GroupJudge | None, siblings: list[Trajectory]
) -> list[Trajectory]:
    """Let the judge score a complete group if necessary, and store the group unless it is stored.
    Returns the siblings with their advantages."""
    if judge and any(sibling.awaits_judge for sibling in siblings):
        siblings = await judge_group(run, judge, siblings)
    summary = group_summary(run.config.train.algorithm.advantage, siblings)
    if run.reader.group(summary.split, summary.step, summary.group) is None:
        await run.writer.add_group(summary)
    return [
        sibling.model_copy(update={"advantage": advantage})
        for sibling, advantage in zip(siblings, summary.advantages, strict=True)
    ]
