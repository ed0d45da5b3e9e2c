"""Files of traces, written by the published formats."""

import json
from pathlib import Path
from typing import Any

TOOL = {"name": "weather", "description": "Weather now", "parameters": {"type": "object"}}
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Weather in Paris?"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
FINAL = {"role": "assistant", "content": "It rains."}
CONVERSATION = [SYSTEM, QUESTION, CALL, RESULT, FINAL]


def write_lines(file: Path, *lines: Any) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def otlp_value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp_value(one) for one in value]}}
    if isinstance(value, dict):
        pairs = [{"key": key, "value": otlp_value(one)} for key, one in value.items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value}


def otlp_span(start: int, attributes: dict[str, Any], trace: str = "t1") -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": f"s{start}",
        "name": "chat",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + start),
        "attributes": [{"key": k, "value": otlp_value(v)} for k, v in attributes.items()],
    }


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [*spans]}]}]}


def genai_calls(structured: bool = False) -> list[dict[str, Any]]:
    """Attributes of two model calls with the GenAI conventions, as values or as JSON text."""
    question = {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}
    arguments = {"city": "Paris"}
    call = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": arguments}
    thought = {"type": "reasoning", "content": "Look it up."}
    asked = {"role": "assistant", "parts": [thought, call], "finish_reason": "tool_call"}
    echoed = {"role": "assistant", "parts": [call]}
    result = {"type": "tool_call_response", "id": "c1", "response": "rain"}
    final = {"role": "assistant", "parts": [{"type": "text", "content": "It rains."}]}
    shared = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
        "gen_ai.tool.definitions": [{"type": "function", **TOOL}],
    }
    calls = [
        {**shared, "gen_ai.input.messages": [question], "gen_ai.output.messages": [asked]},
        {
            **shared,
            "gen_ai.input.messages": [question, echoed, {"role": "tool", "parts": [result]}],
            "gen_ai.output.messages": [{**final, "finish_reason": "length"}],
        },
    ]
    plain = (str, int)
    return [
        {k: v if structured or isinstance(v, plain) else json.dumps(v) for k, v in one.items()}
        for one in calls
    ]


def indexed_calls() -> list[dict[str, Any]]:
    """Attributes of two model calls as OpenLLMetry writes them."""
    prompt = {
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": json.dumps([{"type": "text", "text": "Weather in Paris?"}]),
        "llm.request.functions.0.name": "weather",
        "llm.request.functions.0.description": "Weather now",
        "llm.request.functions.0.parameters": '{"type": "object"}',
    }

    def asked(prefix: str) -> dict[str, str]:
        return {
            f"{prefix}.role": "assistant",
            f"{prefix}.tool_calls.0.id": "c1",
            f"{prefix}.tool_calls.0.name": "weather",
            f"{prefix}.tool_calls.0.arguments": '{"city": "Paris"}',
        }

    later = {
        **asked("gen_ai.prompt.2"),
        "gen_ai.prompt.3.role": "tool",
        "gen_ai.prompt.3.tool_call_id": "c1",
        "gen_ai.prompt.3.content": "rain",
        "gen_ai.completion.0.content": "It rains.",
        "gen_ai.completion.0.finish_reason": "length",
    }
    return [{**prompt, **asked("gen_ai.completion.0")}, {**prompt, **later}]


def openinference_calls() -> list[dict[str, Any]]:
    """Flat attributes of two model calls with the OpenInference conventions."""

    def flat(prefix: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        found = {}
        for place, message in enumerate(messages):
            base = f"{prefix}.{place}.message"
            found |= {f"{base}.role": message["role"], f"{base}.content": message["content"]}
            if "tool_call_id" in message:
                found[f"{base}.tool_call_id"] = message["tool_call_id"]
            for number, call in enumerate(message.get("tool_calls", [])):
                inner = f"{base}.tool_calls.{number}.tool_call"
                found[f"{inner}.id"] = call["id"]
                for key, value in call["function"].items():
                    found[f"{inner}.function.{key}"] = value
        return {key: value for key, value in found.items() if value}

    schema = json.dumps({"type": "function", "function": TOOL})
    shared = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o",
        "llm.tools.0.tool.json_schema": schema,
    }
    ends = ((2, 3), (4, 5))
    return [
        {
            **shared,
            **flat("llm.input_messages", CONVERSATION[:start]),
            **flat("llm.output_messages", CONVERSATION[start:end]),
        }
        for start, end in ends
    ]


def phoenix_span(number: int, attributes: dict[str, Any], trace: str = "t1") -> dict[str, Any]:
    return {
        "name": "ChatCompletion",
        "context": {"trace_id": trace, "span_id": f"s{number}"},
        "span_kind": "LLM",
        "start_time": f"2026-05-01T10:00:0{number}+00:00",
        "attributes": attributes,
    }


def observation(
    number: int, given: Any, answer: Any, trace: str = "t1", **others: Any
) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "traceId": trace,
        "type": "GENERATION",
        "startTime": f"2026-05-01T10:00:0{number}.000Z",
        "model": "gpt-4o",
        "input": given,
        "output": answer,
        **others,
    }


def langfuse_calls() -> list[dict[str, Any]]:
    tools = [{"type": "function", "function": TOOL}]
    return [
        observation(1, {"messages": CONVERSATION[:2], "tools": tools}, CALL),
        observation(2, {"messages": CONVERSATION[:4], "tools": tools}, FINAL),
    ]


def responses_calls() -> list[dict[str, Any]]:
    """Observations with requests and responses of the Responses API."""
    asked = {"type": "message", "role": "user", "content": QUESTION["content"]}
    call = {"type": "function_call", "call_id": "c1", "name": "weather",
            "arguments": '{"city": "Paris"}'}  # fmt: skip
    result = {"type": "function_call_output", "call_id": "c1", "output": RESULT["content"]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]}
    text = [{"type": "output_text", "text": FINAL["content"]}]
    final = {"type": "message", "role": "assistant", "content": text}
    given = {"instructions": SYSTEM["content"], "tools": [{"type": "function", **TOOL}]}
    return [
        observation(1, {**given, "input": [asked]}, {"output": [thought, call]}),
        observation(2, {**given, "input": [asked, thought, call, result]}, {"output": [final]}),
    ]


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Attributes as Phoenix stores them: nested, with lists."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *folders, leaf = name.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = value
    return listed(tree)


def listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    values = {key: listed(value) for key, value in tree.items()}
    return list(values.values()) if all(key.isdecimal() for key in values) else values


def by_time(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OTLP spans of calls, the last first."""
    return [otlp_span(place, one) for place, one in enumerate(calls)][::-1]


def table_row(span: dict[str, Any]) -> dict[str, Any]:
    """Span as a row of Phoenix's table of spans."""
    context = {f"context.{key}": value for key, value in span["context"].items()}
    attributes = {f"attributes.{key}": value for key, value in span["attributes"].items()}
    return {"name": span["name"], "start_time": span["start_time"], **context, **attributes}


PHOENIX = [phoenix_span(n, one) for n, one in enumerate(openinference_calls())]
TRACE = {"id": "t1", "name": "run", "timestamp": "2026-05-01T10:00:00Z", "scores": []}
SNAKE = [
    {"type": "GENERATION", "id": one["id"], "trace_id": "t1", "name": "n",
     "start_time": one["startTime"].replace("T", " ").rstrip("Z"),
     "input": json.dumps(one["input"]), "output": json.dumps(one["output"])}
    for one in langfuse_calls()
]  # fmt: skip
FORMATS: dict[str, list[Any]] = {
    "genai": [otlp(*by_time(genai_calls()))],
    "genai structured": [otlp(one) for one in by_time(genai_calls(structured=True))],
    "openllmetry": [otlp(*by_time(indexed_calls()))],
    "openinference over otlp": [otlp(*by_time(openinference_calls()))],
    "phoenix": PHOENIX,
    "phoenix list": [PHOENIX],
    "phoenix page": [{"data": PHOENIX, "next_cursor": None}],
    "phoenix nested": [
        {**one, "attributes": nested(one["attributes"])} for one in PHOENIX
    ],
    "phoenix table": [table_row(one) for one in PHOENIX],
    "langfuse": langfuse_calls()[::-1],
    "responses": responses_calls(),
    "langfuse page": [{"data": langfuse_calls(), "meta": {}}],
    "langfuse trace": [{**TRACE, "observations": langfuse_calls()}],
    "langfuse storage": SNAKE,
}  # fmt: skip
