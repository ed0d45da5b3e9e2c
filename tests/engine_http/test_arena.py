"""Arena over HTTP: answers are streamed, stored and voted on."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.problems import AtelierError
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.arena import ArenaTicked, AskArena
from tests.engine_http.conftest import Engine, until

QUESTION = [{"role": "user", "content": "Say 1"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TURN = [
    *QUESTION,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "1", "tool_call_id": "c"},
]
"""Prompt of the second turn of an agent."""


def ask(engine: Engine, project: Path, models: list[str], **more: Any) -> list[ArenaTicked]:
    request = AskArena(project=str(project), models=models, **{"chats": [QUESTION], **more})

    async def all_of(client) -> list[ArenaTicked]:  # type: ignore[no-untyped-def]
        async with aclosing(client.ask_arena(request)) as ticks:
            return [one async for one in ticks]

    return engine.call(all_of)


def text_of(ticks: list[ArenaTicked], place: int) -> str:
    return "".join(one.text for one in ticks if one.kind == "said" and one.place == place)


@pytest.fixture
def engine(own_engine: Engine) -> Engine:
    """Engine of a single test, because arena models stay loaded."""
    return own_engine


@pytest.fixture
def trained_run(engine: Engine, project: Path) -> RunSummary:
    run = engine.train(project, **{"train.steps": 2, "train.checkpoint_every": 1})
    engine.wait(run)
    return run


def test_answers_are_streamed_stored_and_voted_on(
    engine: Engine, project: Path, trained_run: RunSummary
) -> None:
    last, first = f"{trained_run.name}@2", f"{trained_run.name}@1"
    ticks = ask(engine, project, ["base", last, last, first], max_tokens=24)
    assert ticks[0].names == ["base", last, f"{last} #2", first]
    texts = [text_of(ticks, place) for place in range(4)]
    assert texts[1] == texts[2], "the same weights and seed give the same answer"
    assert len(set(texts)) == 3, "each model has its own weights"
    assert sum(one.kind == "said" and one.place == 0 for one in ticks) > 1, "the answer is streamed"
    trajectories = [one.trajectory for one in ticks if one.trajectory]
    assert [one.messages[-1].content for one in trajectories] == texts
    assert all(one.branches and one.reward is None for one in trajectories)

    (*_, ended, _) = ask(engine, project, ["base"], chats=[TURN], tools=[TOOL], max_tokens=4)
    assert ended.trajectory is not None
    assert ended.trajectory.tools == [TOOL]
    assert [one.role for one in ended.trajectory.messages[:-1]] == ["user", "assistant", "tool"]

    again = ask(engine, project, ["base", last], max_tokens=24)
    assert [text_of(again, 0), text_of(again, 1)] == texts[:2]
    group = again[-1].group
    assert group is not None
    assert (group.split, group.step) == ("validation", 3)
    names = [one.trajectory.id for one in again if one.trajectory]
    word = Word(kind="order", order=[(names[1],), (names[0],)])
    place = {"split": group.split, "step": group.step, "group": group.group}
    vote = Label(id="v", words=[word], effect="none", **place)
    engine.call(lambda c: c.add_label(again[-1].run_id, vote))
    now = engine.call(lambda c: c.tally(str(project)))
    assert (now.votes, now.run_id) == (1, again[-1].run_id)
    winner = now.pairs[0].name if now.pairs[0].wins else now.pairs[0].against
    assert winner == last
    other = engine.train(project, **{"train.steps": 1})
    engine.wait(other)
    until(
        lambda: not engine.child_processes("engine.policy.torch")
    )  # the arena released its models
    after = ask(engine, project, ["base", last], max_tokens=24)
    assert [text_of(after, 0), text_of(after, 1)] == texts[:2], (
        "reloaded models give the same answers"
    )


def test_agent_runs_on_a_scenario(engine: Engine, project: Path) -> None:
    ticks = ask(engine, project, ["base"], chats=[], scenario="s5")
    (trajectory,) = [one.trajectory for one in ticks if one.trajectory]
    assert trajectory.scenario_id == "s5"
    assert trajectory.reward is not None
    assert trajectory.contestant == "base"
    with pytest.raises(AtelierError, match="no scenario s99"):
        ask(engine, project, ["base"], chats=[], scenario="s99")
    ticks = ask(engine, project, ["base"])
    assert ticks[-1].kind == "stored", "an error does not block the next question"
