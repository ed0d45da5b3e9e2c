"""Run folder of a finished evaluation of two models, with a tool call and an unscored rollout."""

import asyncio
from pathlib import Path
from typing import Any

from engine.evaluation.stored import store_scenarios
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Branch, Message
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import RunSpec, Scenario, Trajectory
from engine.protocol.requests.evaluation import Contestant, EvaluationPlan, SystemPrompt
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, write_spec

RUN = "01JTESTEVALUATION000000000"
STARTED = 1_790_100_000.0
REWARDS: tuple[tuple[float | None, ...], ...] = ((0.25, 0.75), (1.0, None), (0.0, 0.5))
"""Rewards of the base model by scenario and attempt; None is unscored."""
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"word": "apple"}'},
}
BROKEN = {"id": "c2", "type": "function", "function": {"name": "search", "arguments": "{word"}}
MESSAGES = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="Find the apple."),
    Message(role="assistant", reasoning="Search first.", tool_calls=[CALL, BROKEN]),
    Message(role="tool", content="On the table.", tool_call_id="c1", name="search"),
    Message(role="assistant", content="It is on the table."),
]


def make_evaluation(folder: Path, variants: tuple[str, ...] = ()) -> Path:
    """Write the run folder; returns it. `variants`: names of system prompts."""
    run = folder / "runs" / RUN
    run.mkdir(parents=True)
    plan = EvaluationPlan(
        contestants=[
            Contestant(name="base", kind="base", model="tiny"),
            Contestant(name="openai/gpt-5.4", kind="provider", model="openai/gpt-5.4"),
        ],
        variants=[SystemPrompt(name=name, text=name) for name in variants],
        attempts=2,
        scenarios=len(REWARDS),
        source="validation",
        seed=3,
    )
    spec = RunSpec(
        id=RUN, name="amber-crane", kind="evaluation", project="letters", started_at=STARTED,
        config=ProjectConfig(name="letters"), model_path="", evaluation=plan,
    )  # fmt: skip
    write_spec(run, spec)
    store_scenarios(run, [_scenario(number) for number in range(len(REWARDS))])
    asyncio.run(_fill(run, plan))
    return run


def _scenario(number: int) -> Scenario:
    data: dict[str, Any] = {"id": f"a/{number}" if number == 2 else f"s{number}"}
    data["row"] = {"prompt": "Find the apple.", "target": ["table", "desk"]}
    return Scenario(id=data["id"], title=f"Scenario {number}", data=data)


async def _fill(run: Path, plan: EvaluationPlan) -> None:
    writer = RunWriter(run / DATABASE, RUN)
    try:
        for entry, one in enumerate(plan.entries):
            for group, rewards in enumerate(REWARDS):
                for attempt, reward in enumerate(rewards):
                    index = entry * plan.attempts + attempt
                    trajectory = _rollout(one.label, group, index, reward)
                    await writer.add_trajectory(trajectory)
        verdict = Verdict(
            trajectory_id="t-0-0", judge="j", rubric="r", score=0.125, reason="It found the apple."
        )
        judged = _rollout(plan.entries[0].label, 0, 0, REWARDS[0][0])
        await writer.add_verdicts([verdict], [judged], rewarded=False)
    finally:
        writer.close()


def _rollout(label: str, group: int, index: int, reward: float | None) -> Trajectory:
    scored = reward is not None
    problem = None if scored else Problem(code="agent.raised", message="It fell.", detail="Trace")
    branch = Branch(
        tokens=list(range(20)), spans=[(10, 20)], logprobs=[-1.0] * 10, times=[(0.5, 1.5)]
    )
    return Trajectory(
        id=f"t-{group}-{index}", split="validation", step=0, group=group, index=index,
        scenario_id=_scenario(group).id, title=f"Scenario {group}", reward=reward, problem=problem,
        parts={"rules": (reward or 0.0) / 2, "ruler": (reward or 0.0) / 2} if scored else {},
        messages=MESSAGES, branches=[branch], metrics={"moves": 3.0}, output="printed\n",
        contestant=label, duration_s=2.0, started_at=STARTED + 1, turns=1, sampled_tokens=10,
    )  # fmt: skip
