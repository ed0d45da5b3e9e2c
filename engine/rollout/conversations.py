"""Separation of a rollout's model calls into conversations.

Calls belong to one conversation if they begin with the same system messages and the same first
other message. An agent with sub-agents, or with side calls that write a title or a summary, holds
several. Conversations with the same system messages and the same tools are of one kind, as those of
an agent that asks about each move anew. The main kind has most of the answers; of its conversations
the longest is the main one, which the judge and the demonstrations read.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from engine.protocol.config.agent import ConversationRule, ConversationsConfig
from engine.rollout.gateway.requests import SYSTEM_ROLES
from engine.rollout.rendering.chat import text_of
from engine.rollout.rendering.images import images_of
from engine.runtime.text import parse_shallow

Kind = tuple[tuple[str, ...], tuple[str, ...]]
"""System messages in canonical form, and the sorted names of the tools."""


@dataclass
class Conversation:
    """Conversation of a rollout."""

    system: list[str]
    """System messages, in canonical form."""
    first: str
    """First other message, in canonical form; empty if there is none."""
    opening: str
    """Text of these messages, in lower case."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """Tools of the last call that offered any."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """Longest list of messages, with the first answer to it."""
    answers: int = 0

    @property
    def kind(self) -> Kind:
        return tuple(self.system), tuple(sorted(tool_names(self.tools)))

    def record(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: dict[str, Any]
    ) -> None:
        """Record the answer to a call with these messages and tools."""
        self.answers += 1
        self.tools = tools or self.tools
        if len(messages) >= len(self.messages):
            self.messages = [*messages, answer]

    def fits(self, rule: ConversationRule) -> bool:
        """Whether a rule recognises this conversation."""
        by_text = not rule.contains.strip() or rule.contains.lower() in self.opening
        return by_text and (not rule.tool or rule.tool in tool_names(self.tools))


@dataclass(frozen=True)
class NamedConversation:
    """Conversation with its name and what becomes of it."""

    number: int
    """Index in the order of beginning, from 0."""
    name: str
    """Name of the first rule that fits, else `main` or `other`."""
    train: bool
    conversation: Conversation


class Conversations:
    """Conversations of one rollout, in the order in which they began."""

    def __init__(self) -> None:
        self._all: list[Conversation] = []

    def find(self, messages: list[dict[str, Any]]) -> int:
        """Index of the conversation that a call with these messages belongs to; a new one if it
        continues none."""
        opening = list(takewhile(lambda one: one.get("role") in SYSTEM_ROLES, messages))
        system, first = [canonical(message) for message in opening], ""
        if len(opening) < len(messages):
            opening.append(messages[len(opening)])
            first = canonical(opening[-1])
        for number, known in enumerate(self._all):
            if (known.system, known.first) == (system, first):
                return number
        text = "\n".join(text_of(message.get("content")) for message in opening)
        self._all.append(Conversation(system, first, text.lower()))
        return len(self._all) - 1

    def record(
        self,
        number: int,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        answer: dict[str, Any],
    ) -> None:
        """Record an answer in the conversation with this index."""
        self._all[number].record(messages, tools, answer)

    @property
    def chars(self) -> int:
        """Characters of all messages."""
        every = (message for one in self._all for message in one.messages)
        return sum(len(text_of(message.get("content"))) for message in every)

    def named(self, config: ConversationsConfig) -> list[NamedConversation]:
        """Conversations with an answer, the main one first, the others in the order in which they
        began."""
        answered = [one for one in self._all if one.answers]
        if not answered:
            return []
        counts = Counter[Kind]()
        for one in answered:
            counts[one.kind] += one.answers
        main_kind = counts.most_common(1)[0][0]
        found = [
            self._named(number, one, config, main_kind)
            for number, one in enumerate(self._all)
            if one.answers
        ]
        mains = [one for one in found if one.conversation.kind == main_kind]
        main = max(mains, key=lambda one: (len(one.conversation.messages), one.number))
        return [main, *(one for one in found if one is not main)]

    def _named(
        self, number: int, one: Conversation, config: ConversationsConfig, main: Kind
    ) -> NamedConversation:
        for name, rule in config.rules.items():
            if one.fits(rule):
                return NamedConversation(number, name, rule.train, one)
        if one.kind == main:
            return NamedConversation(number, "main", True, one)
        return NamedConversation(number, "other", config.others == "train", one)


def tool_names(tools: list[dict[str, Any]]) -> list[str]:
    """Names of tools in OpenAI's form."""
    return [str((tool.get("function") or {}).get("name", "")) for tool in tools]


def canonical(message: dict[str, Any]) -> str:
    """Canonical form of a message, independent of fields that client libraries add."""
    calls = [
        (call.get("function", {}).get("name"), _meaning(call.get("function", {}).get("arguments")))
        for call in message.get("tool_calls") or []
    ]
    content = text_of(message.get("content"))
    form = [message.get("role"), content, calls, message.get("tool_call_id")]
    return json.dumps([*form, found] if (found := images_of([message])) else form)


def _meaning(arguments: Any) -> Any:
    """Parsed arguments of a tool call: client libraries format the same JSON differently."""
    try:
        return parse_shallow(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
