"""Requests in the OpenAI form: a system message in place of the agent's, and forwarded sessions."""

import asyncio
import json
from typing import Any

import pytest

from engine.protocol.problems import Problem, RolloutError
from engine.protocol.records.judging import Usage
from engine.rollout.gateway.requests import ChatRequest, with_system
from engine.rollout.gateway.sessions import (
    NoProviderAnswer,
    ProviderAnswer,
    RemoteSession,
    chunks,
    completion_of,
)

USER = {"role": "user", "content": "Hello"}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}


class Scripted:
    """Answers with what it is given, and remembers what it was asked."""

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
def test_a_system_message_takes_the_place_of_the_agents(role: str) -> None:
    theirs = {"role": role, "content": "Theirs"}
    later = {"role": "system", "content": "Later"}
    asked = ChatRequest(messages=[theirs, USER, later])
    ours = {"role": "system", "content": "Ours"}
    assert with_system(asked, "Ours").messages == [ours, USER, later]
    assert with_system(ChatRequest(messages=[USER]), "Ours").messages == [ours, USER]
    assert with_system(asked, None) is asked
    assert asked.messages[0] == theirs


def test_what_the_agent_says_is_passed_on_and_nothing_else() -> None:
    remote = Scripted({"tool_calls": [CALL]}, {"content": "Done."})
    session = RemoteSession("t1", remote, max_turns=4)
    tools = [{"type": "function", "function": {"name": "look"}}]
    answer = completion_of(ask(session, tools=tools, tool_choice="auto", max_tokens=999, seed=3))
    assert answer["choices"][0]["message"]["tool_calls"] == [CALL]
    assert remote.asked[0] == (
        "t1", "1.0",
        {"messages": [USER], "max_tokens": 64, "tools": tools, "tool_choice": "auto"},
    )  # fmt: skip
    longer = [USER, session.conversation.messages[-1], {"role": "tool", "content": "7"}]
    ask(session, messages=longer, temperature=0.0, stop="END", max_completion_tokens=7)
    assert remote.asked[1][2] == {
        "messages": longer, "max_tokens": 7, "temperature": 0.0, "stop": "END",
    }  # fmt: skip
    conversation = session.conversation
    assert conversation.messages[-1]["content"] == "Done."
    assert (len(conversation.turns), conversation.tools, conversation.branches()) == (2, tools, [])


def test_a_stream_has_the_whole_answer() -> None:
    session = RemoteSession("t1", Scripted({"content": "Hi", "tool_calls": [CALL]}), max_turns=1)
    answer = ask(session, stream=True)

    async def lines() -> list[str]:
        return [line async for line in chunks(answer)]

    first, last = asyncio.run(lines())
    delta = json.loads(first.removeprefix("data: "))["choices"][0]["delta"]
    assert (delta["content"], delta["tool_calls"][0]["index"]) == ("Hi", 0)
    assert last == "data: [DONE]\n\n"


def test_a_question_without_an_answer_is_remembered_and_paid() -> None:
    trouble = Problem(code="provider.key", message="The provider rejected the key.")
    session = RemoteSession("t1", Scripted(trouble, {"content": "Hi"}), max_turns=3)
    with pytest.raises(NoProviderAnswer, match="rejected the key"):
        ask(session)
    assert [said.message["content"] for said in ask(session)] == ["Hi"]
    assert session.trouble == trouble
    assert session.lost_usd == 0.25


def test_turns_and_pictures_are_refused() -> None:
    session = RemoteSession("t1", Scripted({"content": "Hi"}), max_turns=1)
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    with pytest.raises(RolloutError, match="reads text only"):
        ask(session, messages=[picture])
    with pytest.raises(RolloutError, match="1 model calls"):
        ask(session)
