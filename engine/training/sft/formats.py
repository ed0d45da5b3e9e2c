"""Parser of demonstration lines: text to examples, without tokenization. Pure.

Accepted are chat messages in the OpenAI format (with tools; `weight` 0 excludes an answer from
training), TRL's conversational and plain prompt with completion, and plain `text`. Any other line
raises ValueError, whose text is the reason in one sentence.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from engine.protocol.records.demonstrations import Form

ROLES = ("system", "developer", "user", "assistant", "tool")
SHAREGPT = {"human": "user", "gpt": "assistant"}
KNOWN = '"messages", "prompt" with "completion", or "text"'

Message = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """Training example parsed from one line: a conversation, or plain text (`prompt`, `answer`)."""

    form: Form
    messages: list[Message] = field(default_factory=list)
    """Conversation; empty for plain text."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    learned: frozenset[int] = frozenset()
    """Indexes of the messages that are trained."""
    prompt: str = ""
    """Plain-text prompt, which is not trained."""
    answer: str = ""
    """Plain text that is trained."""

    @property
    def beginning(self) -> str:
        """Key of the prompt; examples with the same prompt share it."""
        if not self.messages:
            return self.prompt or self.answer
        first = min(self.learned)
        return json.dumps([self.messages[:first], self.tools], sort_keys=True)


def read_line(line: bytes) -> Example:
    """Parse a line of a demonstrations file. Raises ValueError with the reason if it is invalid."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("The line is not UTF-8.") from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"The line is not valid JSON: {error}.") from None
    except RecursionError:
        raise ValueError("The JSON is nested too deeply.") from None
    value = {"messages": value} if isinstance(value, list) else value
    if not isinstance(value, dict):
        raise ValueError(f"The line is a {type(value).__name__}, not an object.")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("The text contains a lone surrogate (invalid Unicode).") from None
    return _example(value)


def _example(value: dict[str, Any]) -> Example:
    if "chosen" in value or "rejected" in value:
        raise ValueError(
            "The line is a preference pair, but supervised training needs one answer: write the "
            "chosen answer as a completion."
        )
    if "messages" in value or "conversations" in value:
        return _conversation(value)
    if "prompt" in value and "completion" in value:
        return _prompted(value)
    if "text" in value:
        if not isinstance(value["text"], str) or not value["text"].strip():
            raise ValueError('"text" is empty or not a string.')
        return Example("text", answer=value["text"])
    found = ", ".join(f'"{key}"' for key in list(value)[:6]) or "nothing"
    raise ValueError(f"The line has none of {KNOWN}, only {found}.")


def _conversation(value: dict[str, Any]) -> Example:
    messages = _messages(value.get("messages", value.get("conversations")), "messages")
    learned = {n for n, one in enumerate(messages) if one["role"] == "assistant" and _counts(one)}
    if not learned:
        raise ValueError("The line has no assistant message to train on.")
    return Example("messages", messages, _tools(value), frozenset(learned))


def _prompted(value: dict[str, Any]) -> Example:
    prompt, completion = value["prompt"], value["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not completion:
            raise ValueError('"completion" is empty.')
        return Example("text prompt and completion", prompt=prompt, answer=completion)
    if isinstance(prompt, str) or isinstance(completion, str):
        raise ValueError('"prompt" and "completion" must both be text, or both lists of messages.')
    prompt, completion = _messages(prompt, "prompt"), _messages(completion, "completion")
    messages = [*prompt, *completion]
    places = range(len(prompt), len(messages))
    learned = {n for n in places if messages[n]["role"] == "assistant" and _counts(messages[n])}
    if not learned:
        raise ValueError('"completion" has no assistant message.')
    return Example("prompt and completion", messages, _tools(value), frozenset(learned))


def _counts(message: Message) -> bool:
    """Whether a message is trained, by OpenAI's `weight` (0 or 1). Raises ValueError for others."""
    weight = message.get("weight", 1)
    if weight not in (0, 1):
        raise ValueError(f"A message has the weight {weight}; only 0 and 1 are valid.")
    return bool(weight)


def _messages(value: Any, key: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise ValueError(f'"{key}" is not a list of messages, or is empty.')
    return [_message(one, number) for number, one in enumerate(value, 1)]


def _message(value: Any, number: int) -> Message:
    if not isinstance(value, dict):
        raise ValueError(f"Message {number} is not an object.")
    role = value.get("role", value.get("from"))
    role = SHAREGPT.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise ValueError(
            f"Message {number} has the role {role!r}; supported roles: {', '.join(ROLES)}."
        )
    rest = {k: v for k, v in value.items() if k not in ("from", "value")}
    message = {**rest, "role": role, "content": value.get("content", value.get("value"))}
    _check_content(message["content"], number)
    calls = message.get("tool_calls")
    if calls:
        _check_calls(calls, number)
    elif message["content"] in (None, "", []) and role == "assistant":
        raise ValueError(f"Message {number} of the assistant is empty.")
    if message.get("function_call"):
        raise ValueError(f'Message {number} has the old "function_call": write "tool_calls".')
    return message


def _check_content(content: Any, number: int) -> None:
    if content is None or isinstance(content, str):
        return
    if not (isinstance(content, list) and all(isinstance(part, dict) for part in content)):
        raise ValueError(f"The content of message {number} is neither text nor parts.")
    if any(part.get("type") != "text" for part in content):
        raise ValueError(
            f"Message {number} contains an image, audio or file; only text is supported."
        )


def _check_calls(calls: Any, number: int) -> None:
    whole = isinstance(calls, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("function"), dict)
        and isinstance(one["function"].get("name"), str)
        for one in calls
    )
    if not whole:
        raise ValueError(f"A tool call of message {number} names no function.")


def _tools(value: dict[str, Any]) -> list[dict[str, Any]]:
    tools = value.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError('"tools" is not a list of objects.')
    return tools
