"""Conversations of model calls: a call that repeats an earlier call and its answer continues it."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.integrations.importers.traces.attributes import decoded
from engine.integrations.importers.traces.calls import ModelCall
from engine.protocol.records.conversations import Message


class TracedConversation(NamedTuple):
    """Messages up to the last answer, and the last call."""

    messages: list[Message]
    call: ModelCall


def conversations_of(calls: Iterable[ModelCall]) -> list[TracedConversation]:
    """Join the calls of each thread. A call whose input begins with the input and output of another
    one continues it; what is continued is no conversation of its own. Ordered by start time."""
    threads: dict[str, list[ModelCall]] = {}
    for call in sorted(calls, key=lambda one: one.start_s):
        threads.setdefault(call.thread, []).append(call)
    found = [one for thread in threads.values() for one in _joined(thread)]
    return sorted(found, key=lambda one: one.call.start_s)


def identity_of(messages: Iterable[Message]) -> bytes:
    """Hash that is equal for equal conversations: roles, texts, calls and results, without ids,
    reasoning and the layout of JSON arguments."""
    end = b""
    for message in messages:
        end = _after(end, message)
    return end


def _joined(calls: list[ModelCall]) -> list[TracedConversation]:
    continued: set[bytes] = set()
    answers: dict[bytes, Message] = {}
    whole = []
    for call in calls:
        prefixes = _prefixes(call.prompt)
        continued |= set(prefixes)
        end = _after(prefixes[-1] if prefixes else b"", call.answer.message)
        answers.setdefault(end, call.answer.message)
        whole.append((end, prefixes, call))
    return [
        TracedConversation([*_restored(call.prompt, prefixes, answers), call.answer.message], call)
        for end, prefixes, call in whole
        if end not in continued
    ]


def _prefixes(messages: list[Message]) -> list[bytes]:
    """Hashes of the first, the first two … messages."""
    found: list[bytes] = []
    for message in messages:
        found.append(_after(found[-1] if found else b"", message))
    return found


def _restored(
    messages: list[Message], prefixes: list[bytes], answers: dict[bytes, Message]
) -> list[Message]:
    """Messages with the recorded answers, whose reasoning an agent does not send back."""
    return [
        answers.get(prefix, message) if message.role == "assistant" else message
        for message, prefix in zip(messages, prefixes, strict=True)
    ]


def _after(before: bytes, message: Message) -> bytes:
    """Hash of a conversation from the hash of its beginning and its last message."""
    calls = [_call(one) for one in message.tool_calls]
    text = json.dumps([message.role, message.content.strip(), calls], sort_keys=True)
    return hashlib.sha256(before + text.encode()).digest()


def _call(call: dict[str, Any]) -> list[Any]:
    function = call.get("function") or {}
    return [function.get("name"), decoded(function.get("arguments"))]
