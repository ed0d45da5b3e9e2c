"""Agent frameworks in processes of their own with a scripted policy: a tool call and an answer
leave one sequence of exactly the sampled tokens."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.policy.base import SampledToken, SampleRequest
from engine.protocol.config.agent import AgentConfig, ConversationsConfig
from engine.rollout.agents.processes import AgentPool, AgentResult, Attempt
from tests.agents import (
    COMMAND,
    FRAMEWORKS,
    HARNESSES,
    agents_python,
    coding_agent_command,
    example,
    harness_python,
)
from tests.engine.rollout.conftest import END, GatewayHarness, main_conversation

CALL = 'Let me look. <tool_call>{"name": "look_up", "arguments": {"name": "Ada"}}</tool_call>'
ANSWER = "She is in the garden."
SCENARIO = {"question": "Where is Ada?", "answer": "garden", "input": "Where is Dune?"}


SHELL = '<tool_call>\n{"name": "bash", "arguments": {"command": "%s"}}\n</tool_call>'
FIRST = "<think>\nI look.\n</think>\n\nLet me look.\n" + SHELL % "printf 5 > it; cat it"
SECOND = "<think>\nIt is 5.\n</think>\n\n" + SHELL % "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.fixture(scope="module")
def python() -> str:
    return agents_python()


def script_replies(harness: GatewayHarness, *turns: str) -> None:
    """Let the policy reply with `turns`, one per call."""
    remaining = list(turns)

    async def sample(request: SampleRequest) -> AsyncIterator[list[SampledToken]]:
        harness.policy.asked.append(request)
        chat = harness.policy.chat
        for token in [*chat.encode(remaining.pop(0)), chat.stops[0]]:
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


@pytest.fixture
def roomy(harness: GatewayHarness) -> GatewayHarness:
    """Gateway with room for the tools as frameworks write them, a token for each character."""
    harness.session.max_context = 1000
    return harness


@pytest.mark.long
@pytest.mark.parametrize("title", FRAMEWORKS)
def test_tool_call_and_answer_form_one_sequence(
    roomy: GatewayHarness, tmp_path: Path, python: str, title: str
) -> None:
    (tmp_path / "agent.py").write_text(example(title))
    script_replies(roomy, CALL, ANSWER)
    result = run_agent(roomy, tmp_path, AgentConfig(python=python))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = roomy.session.recording.branches()
    encode = roomy.policy.chat.encode
    completions = [branch.tokens[begin:end] for begin, end in branch.spans]
    assert completions == [[*encode(CALL), END], [*encode(ANSWER), END]]
    first, second = roomy.policy.asked
    assert second.tokens[: len(first.tokens) + len(completions[0])] == [
        *first.tokens,
        *completions[0],
    ]
    assert branch.tokens == [*second.tokens, *completions[1]]
    roles = [message["role"] for message in main_conversation(roomy.session.recording).messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert main_conversation(roomy.session.recording).messages[3]["content"] == "in the garden"
    assert main_conversation(roomy.session.recording).tools[0]["function"]["name"] == "look_up"


def test_agent_command_is_run_as_a_program(harness: GatewayHarness, tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(example(COMMAND))
    script_replies(harness, ANSWER)
    result: Any = run_agent(harness, tmp_path, AgentConfig(command="sh agent.sh"))
    assert result.parts == {"rules": 1.0}, result.output
    (branch,) = harness.session.recording.branches()
    ((begin, end),) = branch.spans
    assert branch.tokens[begin:end] == [*harness.policy.chat.encode(ANSWER), END]


@pytest.mark.long
@pytest.mark.parametrize("model", ["anthropic/policy", "openai/policy"])
def test_coding_agent_runs_unmodified(qwen: GatewayHarness, tmp_path: Path, model: str) -> None:
    """mini-SWE-agent reasons, runs a command, sees its output and submits: one sequence, by
    Anthropic's API and by OpenAI's."""
    script_replies(qwen, FIRST, SECOND)
    result = run_agent(qwen, tmp_path, AgentConfig(command=coding_agent_command(model)))
    assert result.metrics == {"calls": 2.0, "submitted": 1.0}, result.output
    (branch,) = qwen.session.recording.branches()
    chat = qwen.policy.chat
    sampled = [chat.decode(branch.tokens[begin:end]) for begin, end in branch.spans]
    assert sampled == [f"{FIRST}<|im_end|>", f"{SECOND}<|im_end|>"]
    assert '"returncode": 0,\n  "output": "5"' in qwen.prompt


@pytest.mark.long
def test_coding_agent_of_the_documentation_runs(qwen: GatewayHarness, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(example("mini-SWE-agent", HARNESSES))
    script_replies(qwen, FIRST.replace("printf 5 > it; cat it", "echo in the garden"), SECOND)
    result = run_agent(qwen, tmp_path, AgentConfig(python=harness_python("mini_swe_agent")))
    assert (result.parts, result.metrics) == ({"rules": 1.0}, {"calls": 2.0}), result.output


@pytest.mark.long
def test_code_agent_rewrites_its_answer_within_one_conversation(
    qwen: GatewayHarness, tmp_path: Path
) -> None:
    qwen.session.max_context = 20_000
    (tmp_path / "agent.py").write_text(example("smolagents", HARNESSES))
    first = 'Thought: I look.\n<code>\nprint(look_up("Ada"))\n</code>'
    last = 'Thought: I know.\n<code>\nfinal_answer("She is in the garden.")\n</code>'
    script_replies(qwen, first, last)
    result = run_agent(qwen, tmp_path, AgentConfig(python=harness_python("smolagents")))
    assert result.parts == {"rules": 1.0}, result.output
    record, chat = qwen.session.recording, qwen.policy.chat
    sampled = [chat.decode(b.tokens[i:j]) for b in record.branches() for i, j in b.spans]
    assert sampled == [first, last]
    (only,) = record.conversations.named(ConversationsConfig())
    assert only.conversation.answers == 2
