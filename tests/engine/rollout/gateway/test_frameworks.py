"""Agents of the field in processes of their own, before a scripted policy: what they do with tools
and turns leaves one sequence of exactly the tokens that were sampled."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.policy.base import SampledToken, SampleRequest
from engine.protocol.config.project import AgentConfig
from engine.rollout.agents.processes import AgentPool, AgentResult, Attempt
from tests.agents import COMMAND, FRAMEWORKS, agents_python, example
from tests.engine.rollout.conftest import END, Served

CALL = 'Let me look. <tool_call>{"name": "look_up", "arguments": {"name": "Ada"}}</tool_call>'
ANSWER = "She is in the garden."
SCENARIO = {"question": "Where is Ada?", "answer": "garden", "input": "Where is Dune?"}


@pytest.fixture(scope="module")
def python() -> str:
    return agents_python()


def say_in_turn(served: Served, *turns: str) -> None:
    """The policy says these, one a call."""
    left = list(turns)

    async def sample(request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        served.policy.asked.append(request)
        for token in [*served.policy.chat.encode(left.pop(0)), END]:
            yield [SampledToken(token, -0.25, [])]

    served.policy.sample = sample  # type: ignore[method-assign]


def attempt(served: Served, project: Path, config: AgentConfig) -> AgentResult:
    async def run() -> AgentResult:
        pool = AgentPool(project, config, project / "agent.log")
        await pool.start()
        try:
            asked = Attempt(SCENARIO, str(served.client.base_url).rstrip("/"), served.key, "policy")
            return await pool.run(asked)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("title", FRAMEWORKS)
def test_a_call_and_an_answer_are_one_sequence(
    served: Served, tmp_path: Path, python: str, title: str
) -> None:
    (tmp_path / "agent.py").write_text(example(title))
    say_in_turn(served, CALL, ANSWER)
    result = attempt(served, tmp_path, AgentConfig(python=python))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = served.session.conversation.branches()
    encode = served.policy.chat.encode
    said = [branch.tokens[begin:end] for begin, end in branch.spans]
    assert said == [[*encode(CALL), END], [*encode(ANSWER), END]]
    first, second = served.policy.asked
    assert second.tokens[: len(first.tokens) + len(said[0])] == [*first.tokens, *said[0]]
    assert branch.tokens == [*second.tokens, *said[1]]
    roles = [message["role"] for message in served.session.conversation.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert served.session.conversation.messages[3]["content"] == "in the garden"
    assert served.session.conversation.tools[0]["function"]["name"] == "look_up"


def test_any_program(served: Served, tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(example(COMMAND))
    say_in_turn(served, ANSWER)
    result: Any = attempt(served, tmp_path, AgentConfig(command="sh agent.sh"))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = served.session.conversation.branches()
    ((begin, end),) = branch.spans
    assert branch.tokens[begin:end] == [*served.policy.chat.encode(ANSWER), END]
