"""Separation of model calls into conversations, and the rules that name them."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine.protocol.config.agent import ConversationRule, ConversationsConfig
from engine.rollout.conversations import Conversations, NamedConversation

SYSTEM = {"role": "system", "content": "You are a coding agent."}
TASK = {"role": "user", "content": "Mend the test."}
ANSWER = {"role": "assistant", "content": "Done."}
TITLE = {"role": "system", "content": "Write a SHORT TITLE."}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}}


def call(
    conversations: Conversations, *messages: dict[str, Any], tools: tuple[str, ...] = ()
) -> None:
    number = conversations.find(list(messages))
    conversations.record(number, list(messages), [tool(name) for name in tools], ANSWER)


def described(found: list[NamedConversation]) -> list[tuple[int, str, bool, int]]:
    return [(one.number, one.name, one.train, one.conversation.answers) for one in found]


def coding_agent() -> Conversations:
    """A title, three calls of the agent, and a sub-agent with a tool of its own."""
    found = Conversations()
    call(found, TITLE, TASK)
    call(found, SYSTEM, TASK, tools=("shell",))
    call(found, {"role": "system", "content": "Search."}, TASK, tools=("grep",))
    call(found, SYSTEM, TASK, ANSWER, {"role": "tool", "content": "ok"}, tools=("shell",))
    call(found, SYSTEM, TASK, {"role": "user", "content": "Summary so far."}, tools=("shell",))
    return found


def test_calls_with_the_same_beginning_are_one_conversation() -> None:
    found = coding_agent().named(ConversationsConfig())
    assert described(found) == [(1, "main", True, 3), (0, "other", True, 1), (2, "other", True, 1)]
    main = found[0].conversation
    assert main.messages == [SYSTEM, TASK, ANSWER, {"role": "tool", "content": "ok"}, ANSWER]
    assert main.tools == [tool("shell")]


def test_others_are_ignored_and_rules_decide_first() -> None:
    rules = {
        "title": ConversationRule(contains="short title"),
        "search": ConversationRule(tool="grep", train=False),
    }
    config = ConversationsConfig(others="ignore", rules=rules)
    assert described(coding_agent().named(config)) == [
        (1, "main", True, 3),
        (0, "title", True, 1),
        (2, "search", False, 1),
    ]
    assert described(coding_agent().named(ConversationsConfig(others="ignore")))[1:] == [
        (0, "other", False, 1),
        (2, "other", False, 1),
    ]


def test_rule_with_text_and_tool_needs_both() -> None:
    rule = ConversationRule(contains="search", tool="shell", train=False)
    found = coding_agent().named(ConversationsConfig(rules={"both": rule}))
    assert {one.name for one in found} == {"main", "other"}


def test_rule_may_ignore_the_main_conversation() -> None:
    rule = ConversationRule(contains="coding agent", train=False)
    found = coding_agent().named(ConversationsConfig(rules={"driver": rule}))
    assert described(found)[0] == (1, "driver", False, 3)


def test_agent_that_asks_about_each_move_anew_holds_main_conversations() -> None:
    found = Conversations()
    for board in ("a", "b", "c"):
        call(found, SYSTEM, {"role": "user", "content": board})
    named = found.named(ConversationsConfig(others="ignore"))
    assert described(named) == [(2, "main", True, 1), (0, "main", True, 1), (1, "main", True, 1)]


def test_first_of_several_answers_to_the_same_messages_is_kept() -> None:
    found = Conversations()
    number = found.find([SYSTEM, TASK])
    for text in ("first", "second"):
        found.record(number, [SYSTEM, TASK], [], {"role": "assistant", "content": text})
    (only,) = found.named(ConversationsConfig())
    assert only.conversation.messages[-1]["content"] == "first"
    assert only.conversation.answers == 2


def test_calls_without_answer_are_no_conversation() -> None:
    found = Conversations()
    found.find([TITLE, TASK])
    assert found.named(ConversationsConfig()) == []
    call(found, SYSTEM, TASK)
    assert described(found.named(ConversationsConfig())) == [(1, "main", True, 1)]


def test_equal_tool_calls_of_different_json_are_one_beginning() -> None:
    def asked(arguments: str) -> dict[str, Any]:
        function = {"name": "shell", "arguments": arguments}
        return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}

    found = Conversations()
    call(found, asked('{"a": 1}'))
    call(found, asked('{"a":1}'))
    assert described(found.named(ConversationsConfig())) == [(0, "main", True, 2)]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"main": {"contains": "x"}}, "a rule named 'main'"),
        ({"1st": {"contains": "x"}}, "a rule named '1st'"),
        ({"title": {}}, "recognises nothing: set contains, tool, or both"),
        ({"title": {"contains": " "}}, "recognises nothing"),
    ],
)
def test_invalid_rules_are_refused(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ConversationsConfig.model_validate({"rules": rules})
