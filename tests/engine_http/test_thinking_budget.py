"""A thinking budget in training: real engine, sampler and trainer, on tiny models that reason."""

from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineClient
from engine.protocol.events.run import StepFinished
from engine.protocol.requests.runs import TrajectoryQuery
from tests.engine_http.conftest import Engine, make_project
from tests.engine_http.test_families import make_model

AGENT = """
import openai

FORM = {"type": "json_schema", "json_schema": {"name": "number", "schema": {
    "type": "object", "properties": {"number": {"enum": [1, 2, 3, 4]}}, "required": ["number"],
}}}


async def rollout(scenario, model):
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key)
    messages, turns = [{"role": "user", "content": "Guess a number."}], []
    for turn in range(3):
        options = {"response_format": FORM} if turn == 1 else {"max_completion_tokens": 30}
        answer = await client.chat.completions.create(
            model=model.name, messages=messages, **options
        )
        message = answer.choices[0].message
        assert answer.usage.completion_tokens <= (200 if turn == 1 else 30)
        messages.append(message.model_dump(exclude_none=True))
        messages.append({"role": "user", "content": "More."})
        turns.append(sum(map(str.isalpha, message.content or "")) / 30)
    return {"reward": sum(turns), "turn_rewards": turns}
"""
BUDGET = 8


@pytest.mark.parametrize(
    ("title", "kind"), [("Qwen3.8", "qwen3"), ("DeepSeek R1 distilled", "llama")]
)
def test_budget_trains_exactly(
    engine: Engine, workspace: Path, tmp_path: Path, title: str, kind: str
) -> None:
    """Two steps over three turns, one of them structured: forced tokens are not trained, and the
    sampler's log-probs equal the trainer's on both sides of them."""
    project = make_project(workspace / "guess", make_model(title, tmp_path / "m", kind), AGENT)
    run = engine.train(
        project,
        **{
            "model.thinking_budget": BUDGET, "model.max_context": 2048,
            "model.keep_reasoning": "always", "train.max_tokens": 200, "train.steps": 2,
            "train.validate_every": 0, "train.algorithm.credit.kind": "anchors",
        },
    )  # fmt: skip
    events = engine.wait(run, 200)

    async def read(client: EngineClient) -> list[Any]:
        page = await client.trajectories(run.id, TrajectoryQuery(split="train"))
        return [await client.trajectory(run.id, one.id) for one in page.items]

    trajectories = engine.call(read)
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [step.step for step in steps] == [1, 2], events[-1]
    for step in steps:
        assert step.metrics["grad_norm"] > 0, [one.problem for one in trajectories]
        assert step.metrics["logprob_gap/max"] <= 1e-4
        assert 0 < step.metrics["reasoning_closed"] <= 1
    print(title, [step.metrics["logprob_gap/max"] for step in steps])

    branches = [branch for one in trajectories for branch in one.branches]
    assert sum(len(branch.forced) for branch in branches) > len(trajectories)
    for branch in branches:
        trained = {place for start, end in branch.spans for place in range(start, end)}
        assert trained.isdisjoint(place for a, b in branch.forced for place in range(a, b))
        assert len(trained) == len(branch.logprobs)
        for start, end in branch.forced:
            assert "".join(branch.pieces[start:end]) == "\n</think>\n\n"
            (first,) = [span for span in branch.spans if span[1] == start]
            assert first[1] - first[0] == BUDGET
            assert end in [begin for begin, _ in branch.spans]
        assert len(branch.rewards) == len(branch.times) == len(branch.turns)
    assert all(len(one.model_calls) == one.turns == 3 for one in trajectories)
    closed = [b for b in branches if len(b.grammars) > 1]
    assert closed, "no structured answer was closed"
