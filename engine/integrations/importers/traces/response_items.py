"""Items of OpenAI's Responses API as messages: function calls, their outputs and reasoning are
items of their own there, beside the messages. Field names: OpenAI's API reference."""

from typing import Any

CALL, OUTPUT, REASONING = "function_call", "function_call_output", "reasoning"


def with_messages(entries: list[Any]) -> list[Any]:
    """Replace items of the Responses API by messages in the OpenAI format. Reasoning, text and
    calls of the model that follow one another become one message; messages stay as they are."""
    if not any(_kind(entry) in (CALL, OUTPUT, REASONING) for entry in entries):
        return entries
    found: list[Any] = []
    answer: dict[str, Any] | None = None
    for entry in entries:
        kind = _kind(entry)
        if kind == OUTPUT:
            content = entry.get("output")
            found.append({"role": "tool", "tool_call_id": entry.get("call_id"), "content": content})
            answer = None
        elif kind in (CALL, REASONING) or entry.get("role") == "assistant":
            if answer is None:
                answer = {"role": "assistant", "content": [], "tool_calls": []}
                found.append(answer)
            _add(answer, kind, entry)
        else:
            found.append(entry)
            answer = None
    return found


def _kind(entry: Any) -> str:
    """Type of an item without a role; empty for messages."""
    if not isinstance(entry, dict) or "role" in entry:
        return ""
    return str(entry.get("type") or "")


def _add(answer: dict[str, Any], kind: str, entry: dict[str, Any]) -> None:
    if kind == CALL:
        function = {"name": entry["name"], "arguments": entry.get("arguments")}
        answer["tool_calls"].append({"id": entry.get("call_id"), "function": function})
        return
    thinks = kind == REASONING
    content = (thinks and entry.get("summary")) or entry.get("content") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    answer["content"] += [{**part, "type": REASONING} if thinks else part for part in parts]
