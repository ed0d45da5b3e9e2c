"""Turn rewards over HTTP: stored with the turn, credited, or rejected."""

from pathlib import Path

import pytest

from engine.protocol.events.run import RunFailed, RunFinished, StepFinished
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine_http.conftest import Engine, make_project

AGENT = """
import openai

async def rollout(scenario, model):
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        messages, turns = [{"role": "user", "content": scenario["q"]}], []
        for number in range(3):
            # the second question begins anew: another branch
            asked = [{"role": "user", "content": "Another."}] if number == 1 else messages
            answer = await client.chat.completions.create(model=model.name, messages=asked)
            reply = answer.choices[0].message.content or ""
            turns.append(sum(c.isalpha() for c in reply) % 10 + 10 * number)
            if number != 1:
                messages += [{"role": "assistant", "content": reply},
                             {"role": "user", "content": "More."}]
    return {"reward": 1.0, "turn_rewards": RETURNED}
"""
ANCHORS = {
    "train.algorithm.credit.kind": "anchors",
    "reward.weights": {"turns": 0.5},
    "train.steps": 1,
}


def train_with_turn_rewards(
    engine: Engine, project: Path, ends: type[RunFinished] | type[RunFailed] = RunFinished
) -> tuple[list[Trajectory], StepFinished]:
    run = engine.train(project, **ANCHORS)
    events = engine.wait(run)
    assert isinstance(events[-1], ends), events[-1]
    rows = engine.call(lambda c: c.trajectories(run.id, TrajectoryQuery(split="train"))).items
    (step,) = [e for e in events if isinstance(e, StepFinished)]
    return [engine.call(lambda c, t=row.id: c.trajectory(run.id, t)) for row in rows], step


def test_turn_rewards_are_stored_and_weighted_per_turn(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    agent = AGENT.replace("RETURNED", "turns")
    project = make_project(workspace / "turns", tiny_model, agent)
    trajectories, step = train_with_turn_rewards(engine, project)
    assert len(trajectories) == 8
    for one in trajectories:
        assert one.reward is not None
        assert [len(branch.spans) for branch in one.branches] == [2, 1]
        first, third, second = [r for branch in one.branches for r in branch.rewards]
        # ten more for each turn, half of it by the weight
        assert 0 <= first < 5 <= second < 10 <= third < 15
        assert one.parts["turns"] == pytest.approx(2 * (first + second + third))
        assert one.reward == pytest.approx(1 + first + second + third)
    assert not step.skipped


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("turns[:2]", "The agent returned 2 turn_rewards for 3 model responses."),
        ("turns[:2] + [None]", "a value for turn_rewards[2] that is not a number"),
        ("turns[:2] + [float('nan')]", "The agent returned nan for turn_rewards[2]"),
        ("'high'", "turn_rewards that are not a list"),
    ],
)
def test_invalid_turn_rewards_are_reported_and_unscored(
    engine: Engine, workspace: Path, tiny_model: Path, returned: str, words: str
) -> None:
    agent = AGENT.replace("RETURNED", returned)
    project = make_project(workspace / "turns", tiny_model, agent)
    trajectories, step = train_with_turn_rewards(engine, project, RunFailed)
    assert {one.reward for one in trajectories} == {None}
    assert all(one.problem and words in one.problem.message for one in trajectories)
    assert step.skipped
