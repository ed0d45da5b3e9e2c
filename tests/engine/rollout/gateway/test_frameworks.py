"""Agent frameworks in processes of their own with a scripted policy: a tool call and an answer
leave one sequence of exactly the sampled tokens."""

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


def script_replies(served: Served, *turns: str) -> None:
    """Let the policy reply with `turns`, one per call."""
    remaining = list(turns)

    async def sample(request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        served.policy.asked.append(request)
        for token in [*served.policy.chat.encode(remaining.pop(0)), END]:
            yield [SampledToken(token, -0.25, [])]

    served.policy.sample = sample  # type: ignore[method-assign]


def run_agent(served: Served, project: Path, config: AgentConfig) -> AgentResult:
    async def run() -> AgentResult:
        pool = AgentPool(project, config, project / "agent.log")
        await pool.start()
        try:
            attempt = Attempt(
                SCENARIO, str(served.client.base_url).rstrip("/"), served.key, "policy"
            )
            return await pool.run(attempt)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("title", FRAMEWORKS)
def test_tool_call_and_answer_form_one_sequence(
    served: Served, tmp_path: Path, python: str, title: str
) -> None:
    (tmp_path / "agent.py").write_text(example(title))
    script_replies(served, CALL, ANSWER)
    result = run_agent(served, tmp_path, AgentConfig(python=python))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = served.session.conversation.branches()
    encode = served.policy.chat.encode
    completions = [branch.tokens[begin:end] for begin, end in branch.spans]
    assert completions == [[*encode(CALL), END], [*encode(ANSWER), END]]
    first, second = served.policy.asked
    assert second.tokens[: len(first.tokens) + len(completions[0])] == [
        *first.tokens,
        *completions[0],
    ]
    assert branch.tokens == [*second.tokens, *completions[1]]
    roles = [message["role"] for message in served.session.conversation.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert served.session.conversation.messages[3]["content"] == "in the garden"
    assert served.session.conversation.tools[0]["function"]["name"] == "look_up"


def test_agent_command_is_run_as_a_program(served: Served, tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(example(COMMAND))
    script_replies(served, ANSWER)
    result: Any = run_agent(served, tmp_path, AgentConfig(command="sh agent.sh"))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = served.session.conversation.branches()
    ((begin, end),) = branch.spans
    assert branch.tokens[begin:end] == [*served.policy.chat.encode(ANSWER), END]
