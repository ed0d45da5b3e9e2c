"""Verdicts → rewards: adds the judge's part to the others, and stores the group."""

from engine.judge.panel import GroupJudge
from engine.judge.ruler import combined
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem, RolloutError
from engine.protocol.records.judging import PART, Verdict
from engine.protocol.records.runs import Trajectory
from engine.reward.blend import blend
from engine.storage.run_folder.run import Run


async def judge_group(run: Run, judge: GroupJudge, siblings: list[Trajectory]) -> list[Trajectory]:
    """Judge a group, store verdicts and rewards, and return the updated trajectories."""
    verdicts = await judge.judge(siblings)
    scored = with_verdicts(run.config, siblings, verdicts)
    await run.writer.add_verdicts(verdicts, scored, rewarded=True)
    return scored


def with_verdicts(
    config: ProjectConfig, siblings: list[Trajectory], verdicts: list[Verdict]
) -> list[Trajectory]:
    """Trajectories with rewards that result from verdicts; a trajectory for which no judge gave a
    score becomes unscored."""
    scores = combined(config.judge, verdicts)
    problems = {v.trajectory_id: v.problem for v in verdicts if v.problem}
    return [
        _rewarded(config, one, scores.get(one.id), problems.get(one.id))
        if one.awaits_judge or PART in one.parts
        else one
        for one in siblings
    ]


def _rewarded(
    config: ProjectConfig, trajectory: Trajectory, score: float | None, problem: Problem | None
) -> Trajectory:
    parts = {name: value for name, value in trajectory.parts.items() if name != PART}
    reward = None
    if score is not None:
        parts[PART], problem = score, None
        try:
            reward = blend(config.reward, parts, trajectory.metrics)
        except RolloutError as error:
            problem = error.problem
    return trajectory.model_copy(
        update={"parts": parts, "reward": reward, "problem": problem, "awaits_judge": False}
    )
