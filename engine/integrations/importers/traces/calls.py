"""Model calls of spans and observations, by the convention that their attributes follow."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.integrations.importers.chat_messages import WRONG
from engine.integrations.importers.traces.attributes import (
    decoded,
    nest,
    otlp_attributes,
    seconds_of,
    value_at,
)
from engine.integrations.importers.traces.documents import Record
from engine.integrations.importers.traces.messages import (
    Answer,
    answers_of,
    answers_of_payload,
    messages_of,
    openinference_messages,
    openinference_tools,
    prompt_of_payload,
    tools_of_payload,
)
from engine.protocol.records.conversations import Message

OPERATIONS = ("chat", "text_completion", "generate_content")
DETAILS = "gen_ai.client.inference.operation.details"
"""Event that carries the messages of a call, if they are not attributes of the span."""


class Span(NamedTuple):
    """Span with nested attributes."""

    where: str
    trace: str
    id: str
    kind: str
    """Kind by Phoenix; empty if only the attributes say it."""
    start_s: float
    attributes: dict[str, Any]


class ModelCall(NamedTuple):
    """Answer of a model to a list of messages, with its place in the traces."""

    thread: str
    """Conversation id, session id or trace id."""
    trace: str
    id: str
    """Id of the span or observation."""
    start_s: float
    """Unix time in seconds; 0 if unknown."""
    prompt: list[Message]
    answer: Answer
    tools: list[dict[str, Any]]
    model: str


class Unreadable(Exception):
    """Model call whose messages cannot be read, with its place and the reason."""

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__(f"{where}: {type(error).__name__}: {str(error)[:200]}")
        self.where = where


def spans_of(record: Record) -> Iterator[Span]:
    """Yield the spans of a record of OTLP (`resourceSpans`), or of one exported by Phoenix."""
    data = record.data
    groups = data.get("resourceSpans", data.get("resource_spans"))
    if groups is None:
        yield _phoenix_span(record)
        return
    for group in groups:
        scopes = group.get("scopeSpans", group.get("scope_spans")) or []
        for span in (one for scope in scopes for one in scope.get("spans") or []):
            attributes = otlp_attributes(span.get("attributes"))
            for event in span.get("events") or []:
                if event.get("name") == DETAILS:
                    attributes = {**otlp_attributes(event.get("attributes")), **attributes}
            trace = span.get("traceId", span.get("trace_id", ""))
            start = span.get("startTimeUnixNano", span.get("start_time_unix_nano"))
            name = str(span.get("spanId", span.get("span_id", "")))
            yield Span(record.where, str(trace), name, "", seconds_of(start), nest(attributes))


def _phoenix_span(record: Record) -> Span:
    data = nest(record.data)
    context = data.get("context") or {}
    attributes = decoded(data.get("attributes"))
    return Span(
        record.where,
        str(context.get("trace_id") or data.get("trace_id") or data.get("traceId") or ""),
        str(context.get("span_id") or data.get("span_id") or data.get("spanId") or ""),
        str(data.get("span_kind") or ""),
        seconds_of(data.get("start_time")),
        nest(attributes if isinstance(attributes, dict) else otlp_attributes(attributes)),
    )


def calls_of(span: Span) -> list[ModelCall] | None:
    """Return the model calls of a span, one for each choice; an empty list if it is a model call
    without recorded messages, and None if it is another kind of span. Raises Unreadable."""
    try:
        read = _reader(span)
        if read is None:
            return None
        prompt, answers, tools = read(span.attributes)
    except WRONG as error:
        raise Unreadable(span.where, error) from error
    if not prompt:
        return []
    thread = value_at(span.attributes, "gen_ai.conversation.id")
    thread = str(thread or value_at(span.attributes, "session.id") or span.trace or span.id)
    model = value_at(span.attributes, "gen_ai.request.model")
    model = str(model or value_at(span.attributes, "llm.model_name") or "")
    return [
        ModelCall(thread, span.trace, span.id, span.start_s, prompt, answer, tools, model)
        for answer in answers
    ]


def _reader(span: Span) -> Any:
    """Function that reads the attributes of a model call; None for another span."""
    attributes = span.attributes
    operation = value_at(attributes, "gen_ai.operation.name")
    kind = str(value_at(attributes, "openinference.span.kind") or span.kind).upper()
    kind = "" if kind == "UNKNOWN" or kind.startswith("SPAN_KIND_") else kind
    if value_at(attributes, "llm.input_messages") is not None or kind == "LLM":
        return _openinference if kind in ("LLM", "") else None
    if operation is not None and operation not in OPERATIONS:
        return None
    if value_at(attributes, "gen_ai.prompt") is not None:
        return _indexed
    named = operation is not None or value_at(attributes, "gen_ai.input.messages") is not None
    return _genai if named else None


Parts = tuple[list[Message], list[Answer], list[dict[str, Any]]]


def _genai(attributes: dict[str, Any]) -> Parts:
    system = decoded(value_at(attributes, "gen_ai.system_instructions"))
    if isinstance(system, str) and system:
        system = [{"type": "text", "content": system}]
    first = [{"role": "system", "parts": system}] if system else []
    prompt = messages_of(value_at(attributes, "gen_ai.input.messages"))
    if not prompt:
        return [], [], []
    answers = answers_of(value_at(attributes, "gen_ai.output.messages"))
    tools = tools_of_payload(value_at(attributes, "gen_ai.tool.definitions"))
    return [*messages_of(first), *prompt], answers, tools


def _indexed(attributes: dict[str, Any]) -> Parts:
    """Read OpenLLMetry's `gen_ai.prompt.N.…` and `gen_ai.completion.N.…`."""
    prompt = messages_of(value_at(attributes, "gen_ai.prompt"))
    answers = answers_of(value_at(attributes, "gen_ai.completion"))
    return prompt, answers, tools_of_payload(value_at(attributes, "llm.request.functions"))


def _openinference(attributes: dict[str, Any]) -> Parts:
    tools = openinference_tools(value_at(attributes, "llm.tools"))
    prompt = messages_of(openinference_messages(value_at(attributes, "llm.input_messages")))
    answers = answers_of(openinference_messages(value_at(attributes, "llm.output_messages")))
    if not prompt:
        prompt = prompt_of_payload(value_at(attributes, "input.value"))
    return prompt, answers or answers_of_payload(value_at(attributes, "output.value")), tools
