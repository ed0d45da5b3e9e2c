"""Messages of traces in the OpenAI format: GenAI parts, OpenInference messages, indexed attributes,
Anthropic's content blocks, items of the Responses API, and the inputs and outputs of Langfuse.

Field names: OpenTelemetry GenAI semantic conventions, OpenInference semantic conventions, and the
API references of Langfuse and OpenLLMetry. Values of the wrong shape raise one of `WRONG`.
"""

import json
from typing import Any, NamedTuple

from engine.integrations.importers.chat_messages import message_of
from engine.integrations.importers.traces.attributes import decoded, entries_of, nest, value_at
from engine.integrations.importers.traces.response_items import with_messages
from engine.protocol.records.conversations import Message

ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}
KNOWN = ("system", "developer", "user", "assistant", "tool", "function")
TEXT = ("text", "input_text", "output_text")
REASONING = ("reasoning", "thinking")
CALL = ("tool_call", "tool_use")
RESULT = ("tool_call_response", "tool_result")


class Answer(NamedTuple):
    """Message of the model, and whether it reached its token limit."""

    message: Message
    truncated: bool = False


def messages_of(entries: Any) -> list[Message]:
    """Convert a list of messages; a message with results of several tools becomes several."""
    items = with_messages(entries_of(entries))
    found = [message for entry in items for message in _split(entry)]
    return [message_of(one) for one in found]


def answers_of(entries: Any) -> list[Answer]:
    """Convert output messages; each is one choice."""
    found = []
    for entry in entries_of(entries):
        role = entry.get("role") or "assistant"
        (message,) = _split({**entry, "role": role})
        found.append(Answer(message_of(message), _truncated(entry)))
    return found


def prompt_of_payload(value: Any) -> list[Message]:
    """Messages of an input: a list, `{"messages": […]}`, one message, or the text of a prompt."""
    value = decoded(value)
    if isinstance(value, dict) and "role" in value:
        return messages_of([value])
    if isinstance(value, dict) and value.get("instructions"):
        before = [Message(role="system", content=text_of(value["instructions"]))]
        return [*before, *prompt_of_payload({**value, "instructions": None})]
    if isinstance(value, dict):
        value = decoded(value.get("messages", value.get("prompt", value.get("input"))))
    if isinstance(value, str) and value:
        return [Message(role="user", content=value)]
    return messages_of(value)


def answers_of_payload(value: Any) -> list[Answer]:
    """Answers of an output: choices of a chat completion, a response of the Responses API,
    messages, or text; any other object is the JSON text of an answer."""
    value = decoded(value)
    if value in (None, "", [], {}):
        return []
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        reasons = [{"finish_reason": one.get("finish_reason")} for one in value["choices"]]
        pairs = zip(value["choices"], reasons, strict=True)
        return answers_of([{**one["message"], **reason} for one, reason in pairs])
    if isinstance(value, dict) and isinstance(value.get("output"), list):
        cut = value_at(value, "incomplete_details.reason") == "max_output_tokens"
        items = with_messages(value["output"])
        return answers_of([{**one, "finish_reason": "length" if cut else ""} for one in items])
    if isinstance(value, list):
        value = with_messages(value)
    if isinstance(value, list) and all(isinstance(one, dict) and "role" in one for one in value):
        return answers_of(value)
    if isinstance(value, dict) and ("role" in value or "tool_calls" in value):
        return answers_of([value])
    if isinstance(value, dict) and set(value) <= {"content", "text", "completion"}:
        value = next(iter(value.values()))
    return [Answer(Message(role="assistant", content=text_of(value)))]


def tools_of_payload(entries: Any) -> list[dict[str, Any]]:
    """Tool definitions in the OpenAI format, from the OpenAI's, Anthropic's or GenAI's."""
    return [tool_of(decoded(entry)) for entry in entries_of(entries)]


def tool_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Convert one tool definition."""
    if isinstance(entry.get("function"), dict):
        return {"type": "function", "function": entry["function"]}
    parameters = decoded(entry.get("parameters", entry.get("input_schema"))) or {}
    made = {"name": entry["name"], "parameters": parameters}
    if entry.get("description"):
        made["description"] = entry["description"]
    return {"type": "function", "function": made}


def openinference_messages(entries: Any) -> list[dict[str, Any]]:
    """Convert `llm.input_messages` or `llm.output_messages` to messages with plain names."""
    return [_openinference_message(nest(entry)) for entry in entries_of(entries)]


def openinference_tools(entries: Any) -> list[dict[str, Any]]:
    """Convert `llm.tools`, whose `tool.json_schema` is a definition or its parameters alone."""
    found = []
    for entry in entries_of(entries):
        tool = nest(entry).get("tool") or entry
        schema = decoded(tool.get("json_schema")) or {}
        if "name" not in schema and "function" not in schema:
            schema = {"parameters": schema}
        own = {key: tool[key] for key in ("name", "description") if tool.get(key)}
        found.append(tool_of({**own, **schema}))
    return found


def text_of(value: Any) -> str:
    """Text of a value: itself, an empty text for None, else its JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _openinference_message(entry: dict[str, Any]) -> dict[str, Any]:
    message = nest(entry.get("message") or entry)
    calls = [nest(one) for one in entries_of(message.get("tool_calls"))]
    contents = [nest(one) for one in entries_of(message.get("contents"))]
    parts = [one.get("message_content") or one for one in contents]
    return {
        **{key: message[key] for key in ("role", "tool_call_id", "name") if message.get(key)},
        "content": message.get("content") or parts,
        "tool_calls": [one.get("tool_call") or one for one in calls],
    }


def _split(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert a message to one in the OpenAI format, after one message for each tool result."""
    role = str(entry.get("role") or entry.get("type")).lower()
    role = ROLES.get(role, role)
    if role not in KNOWN:
        raise ValueError(f"the role {role[:40]!r} is unknown")
    content = decoded_parts(entry.get("parts", entry.get("content")))
    parts = content if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    parts = [one if isinstance(one, dict) else {"type": "text", "text": str(one)} for one in parts]
    results = [_result(part) for part in parts if part.get("type") in RESULT]
    calls = [part for part in parts if part.get("type") in CALL]
    calls += [decoded(one) for one in entries_of(entry.get("tool_calls"))]
    thoughts = [_words(part) for part in parts if part.get("type") in REASONING]
    thoughts += [entry.get("reasoning") or entry.get("reasoning_content") or ""]
    aside = (*RESULT, *CALL, *REASONING)
    text = "".join(_words(part) for part in parts if part.get("type") not in aside)
    message: dict[str, Any] = {
        "role": role,
        "content": text,
        "reasoning": "\n".join(filter(None, thoughts)),
        "tool_calls": [_call(one) for one in calls],
    }
    message |= {key: entry[key] for key in ("name", "tool_call_id") if entry.get(key)}
    if results and not (text or calls):
        return results
    return [*results, message]


def decoded_parts(content: Any) -> Any:
    """Content, decoded if it is the JSON text of a list of typed parts."""
    parts = decoded(content)
    typed = isinstance(parts, list) and parts and all(isinstance(p, dict) for p in parts)
    return parts if typed and all("type" in part for part in parts) else content


def _words(part: dict[str, Any]) -> str:
    """Text of a part; another kind (an image, a file) is named in brackets."""
    kind = part.get("type") or "text"
    if kind in (*TEXT, *REASONING):
        return text_of(part.get("text", part.get("content", part.get("thinking"))))
    return f"[{part.get('modality') or kind}]"


def _result(part: dict[str, Any]) -> dict[str, Any]:
    value = part.get("response", part.get("result", part.get("content")))
    if isinstance(value, list) and all(isinstance(p, dict) and "type" in p for p in value):
        value = "".join(map(_words, value))
    name = part.get("id", part.get("tool_use_id"))
    return {"role": "tool", "tool_call_id": name, "content": text_of(value)}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    given = function.get("arguments", function.get("args", function.get("input")))
    made = {"name": str(function["name"]), "arguments": text_of(given) or "{}"}
    identity = {"id": call["id"]} if call.get("id") else {}
    return {**identity, "type": "function", "function": made}


def _truncated(entry: dict[str, Any]) -> bool:
    return entry.get("finish_reason") in ("length", "max_tokens")
