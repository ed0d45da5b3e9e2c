"""OpenAI-style requests: replacing the system message, and sessions forwarded to a provider."""

import asyncio
import json
from typing import Any

import pytest

from engine.protocol.problems import Problem, RolloutError
from engine.protocol.records.judging import Usage
from engine.rollout.gateway.completions import Tokens, completion_chunks
from engine.rollout.gateway.requests import ChatRequest, with_system
from engine.rollout.gateway.sampling import begin
from engine.rollout.gateway.sessions import NoProviderAnswer, ProviderAnswer, RemoteSession
from tests.engine.rollout.conftest import main_conversation

USER = {"role": "user", "content": "Hello"}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}


class ScriptedProvider:
    """Provider with scripted replies that records the requests."""

    name = "openai/scripted"
    max_tokens = 64

    def __init__(self, *messages: dict[str, Any] | Problem) -> None:
        self.messages = list(messages)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    async def say(self, attempt: str, call: str, body: dict[str, Any]) -> ProviderAnswer:
        self.asked.append((attempt, call, body))
        message = self.messages.pop(0)
        if isinstance(message, Problem):
            raise NoProviderAnswer(message, 0.25)
        usage = Usage(prompt_tokens=10, completion_tokens=5, cost_usd=0.5)
        return ProviderAnswer({"role": "assistant", "content": "", **message}, "stop", usage)


def ask(session: RemoteSession, **fields: Any) -> list[ProviderAnswer]:
    request = ChatRequest(messages=fields.pop("messages", [USER]), **fields)
    return asyncio.run(session.answer(request))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_message_replaces_that_of_the_agent(role: str) -> None:
    agent_system = {"role": role, "content": "Theirs"}
    later_system = {"role": "system", "content": "Later"}
    request = ChatRequest(messages=[agent_system, USER, later_system])
    replacement = {"role": "system", "content": "Ours"}
    assert with_system(request, "Ours").messages == [replacement, USER, later_system]
    assert with_system(ChatRequest(messages=[USER]), "Ours").messages == [replacement, USER]
    assert with_system(request, None) is request
    assert request.messages[0] == agent_system


def test_agent_request_is_forwarded_with_known_fields_only() -> None:
    provider = ScriptedProvider({"tool_calls": [CALL]}, {"content": "Done."})
    session = RemoteSession("t1", provider, max_turns=4)
    tools = [{"type": "function", "function": {"name": "look"}}]
    (answer,) = ask(session, tools=tools, tool_choice="auto", max_tokens=999, seed=3)
    assert answer.message["tool_calls"] == [CALL]
    assert provider.asked[0] == (
        "t1", "1.0",
        {"messages": [USER], "max_tokens": 64, "tools": tools, "tool_choice": "auto", "seed": 3},
    )  # fmt: skip
    longer = [
        USER,
        main_conversation(session.recording).messages[-1],
        {"role": "tool", "content": "7"},
    ]
    ask(session, messages=longer, temperature=0.0, stop="END", max_completion_tokens=7)
    assert provider.asked[1][2] == {
        "messages": longer, "max_tokens": 7, "temperature": 0.0, "stop": "END",
    }  # fmt: skip
    conversation = session.recording
    assert main_conversation(conversation).messages[-1]["content"] == "Done."
    assert (
        len(conversation.turns),
        main_conversation(conversation).tools,
        conversation.branches(),
    ) == (2, tools, [])
    first, second = conversation.calls
    assert 0 <= first.start_s <= first.end_s <= second.start_s <= second.end_s
    assert first.prompt_tokens == conversation.turns[0].prompt_tokens


def test_stream_contains_the_whole_answer() -> None:
    session = RemoteSession(
        "t1", ScriptedProvider({"content": "Hi", "tool_calls": [CALL]}), max_turns=1
    )
    request = ChatRequest(messages=[USER], stream=True)

    async def lines() -> list[str]:
        call = await begin(session, request)
        return [line async for line in completion_chunks(request, call, Tokens(None, False))]

    _, last = asyncio.run(lines())
    delta = json.loads(last.removeprefix("data: "))["choices"][0]["delta"]
    assert (delta["content"], delta["tool_calls"][0]["index"]) == ("Hi", 0)


def test_unanswered_request_is_recorded_with_its_cost() -> None:
    problem = Problem(code="provider.key", message="The provider rejected the key.")
    session = RemoteSession("t1", ScriptedProvider(problem, {"content": "Hi"}), max_turns=3)
    with pytest.raises(NoProviderAnswer, match="rejected the key"):
        ask(session)
    assert [reply.message["content"] for reply in ask(session)] == ["Hi"]
    assert session.trouble == problem
    assert session.lost_usd == 0.25


def test_too_many_turns_and_images_are_rejected() -> None:
    session = RemoteSession("t1", ScriptedProvider({"content": "Hi"}), max_turns=1)
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    with pytest.raises(RolloutError, match="reads text only"):
        ask(session, messages=[picture])
    with pytest.raises(RolloutError, match="1 model calls"):
        ask(session)


@pytest.mark.parametrize(
    "field", [{"logprobs": True}, {"structured_outputs": {"regex": "a"}},
              {"chat_template_kwargs": {"enable_thinking": False}}],
)  # fmt: skip
def test_field_that_no_provider_takes_is_refused(field: dict[str, Any]) -> None:
    session = RemoteSession("t1", ScriptedProvider({"content": "Hi"}), max_turns=1)
    (name,) = field
    with pytest.raises(RolloutError, match=f"{name}: .*provider"):
        ask(session, **field)
