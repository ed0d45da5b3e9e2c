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
from tests.engine.rollout.conftest import END, GatewayHarness

CALL = 'Let me look. <tool_call>{"name": "look_up", "arguments": {"name": "Ada"}}</tool_call>'
ANSWER = "She is in the garden."
SCENARIO = {"question": "Where is Ada?", "answer": "garden", "input": "Where is Dune?"}


@pytest.fixture(scope="module")
def python() -> str:
    return agents_python()


def script_replies(harness: GatewayHarness, *turns: str) -> None:
    """Let the policy reply with `turns`, one per call."""
    remaining = list(turns)

    async def sample(request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        harness.policy.asked.append(request)
        for token in [*harness.policy.chat.encode(remaining.pop(0)), END]:
            yield [SampledToken(token, -0.25, [])]

    harness.policy.sample = sample  # type: ignore[method-assign]


def run_agent(harness: GatewayHarness, project: Path, config: AgentConfig) -> AgentResult:
    async def run() -> AgentResult:
        pool = AgentPool(project, config, project / "agent.log")
        await pool.start()
        try:
            attempt = Attempt(
                SCENARIO, str(harness.client.base_url).rstrip("/"), harness.key, "policy"
            )
            return await pool.run(attempt)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("title", FRAMEWORKS)
def test_tool_call_and_answer_form_one_sequence(
    harness: GatewayHarness, tmp_path: Path, python: str, title: str
) -> None:
    (tmp_path / "agent.py").write_text(example(title))
    script_replies(harness, CALL, ANSWER)
    result = run_agent(harness, tmp_path, AgentConfig(python=python))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = harness.session.conversation.branches()
    encode = harness.policy.chat.encode
    completions = [branch.tokens[begin:end] for begin, end in branch.spans]
    assert completions == [[*encode(CALL), END], [*encode(ANSWER), END]]
    first, second = harness.policy.asked
    assert second.tokens[: len(first.tokens) + len(completions[0])] == [
        *first.tokens,
        *completions[0],
    ]
    assert branch.tokens == [*second.tokens, *completions[1]]
    roles = [message["role"] for message in harness.session.conversation.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert harness.session.conversation.messages[3]["content"] == "in the garden"
    assert harness.session.conversation.tools[0]["function"]["name"] == "look_up"


def test_agent_command_is_run_as_a_program(harness: GatewayHarness, tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(example(COMMAND))
    script_replies(harness, ANSWER)
    result: Any = run_agent(harness, tmp_path, AgentConfig(command="sh agent.sh"))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = harness.session.conversation.branches()
    ((begin, end),) = branch.spans
    assert branch.tokens[begin:end] == [*harness.policy.chat.encode(ANSWER), END]
