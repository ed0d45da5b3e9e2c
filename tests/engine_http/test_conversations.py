"""Conversations of one rollout in a real engine: separated, named by rules, trained or ignored."""

from pathlib import Path

from engine.cli.commands.show import lines_of
from engine.client import EngineClient
from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine_http.conftest import Engine, make_project

AGENT = """
import asyncio
import openai

TITLE = [{"role": "system", "content": "Write a short title."}]
SEARCH = [{"role": "system", "content": "Search the archive."}]

async def rollout(scenario, model):
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key) as client:
        async def ask(messages):
            reply = await client.chat.completions.create(
                model=model.name, messages=messages, max_completion_tokens=6
            )
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
            return messages[-1]["content"]

        task = {"role": "user", "content": scenario["q"]}
        messages = [{"role": "system", "content": "Answer."}, task]
        await asyncio.gather(ask([*TITLE, task]), ask(messages))
        found = await ask([*SEARCH, task])
        messages.append({"role": "user", "content": f"Found: {found}"})
        text = await ask(messages)
    return {"reward": sum(c.isalpha() for c in text) / 8}
"""
RULES = """
[agent.conversations]
others = "ignore"

[agent.conversations.rules.search]
contains = "search the archive"
"""


def test_conversations_are_named_and_the_ignored_ones_untrained(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    project = make_project(workspace / "letters", tiny_model, AGENT, RULES)
    run = engine.train(project)
    events = engine.wait(run, 120)
    assert isinstance(events[-1], RunFinished), events[-1]
    step = next(event.metrics for event in events if isinstance(event, StepFinished))
    assert step["grad_norm"] > 0
    assert step["logprob_gap/max"] <= 1e-4

    async def read(client: EngineClient) -> list[Trajectory]:
        page = await client.trajectories(run.id, TrajectoryQuery(split="train"))
        return [await client.trajectory(run.id, row.id) for row in page.items]

    found = engine.call(read)
    assert found
    trained = 0
    for one in found:
        named = [(c.name, c.trained, c.answers) for c in one.conversations]
        assert named[0] == ("main", True, 2)
        assert sorted(named[1:]) == [("other", False, 1), ("search", True, 1)]
        assert len(one.messages) == 5
        assert [m.role for m in one.conversations[1].messages] == ["system", "user", "assistant"]
        assert sorted(branch.conversation for branch in one.branches) == [0, 1, 2]
        names = {one.conversations[branch.conversation].name for branch in one.trained_branches}
        assert names == {"main", "search"}
        trained += sum(branch.sampled for branch in one.trained_branches)
        assert any("other, not trained]" in line for line in lines_of(one, []))
    assert trained < sum(one.sampled_tokens for one in found)
