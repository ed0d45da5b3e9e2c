"""Spans of a trajectory for its waterfall: model calls, and the tool calls between them (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.protocol.records.conversations import Message, ModelCall
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.filters import is_error_result
from studio.pages.trajectories.reader.transcript_rows import call_words, turn_rows
from studio.text import formatting
from studio.widgets.transcript.items import Item

OF_TOOLS = "tools"


@dataclass(frozen=True)
class Span:
    """Bar of the waterfall. Times are seconds from the start of the rollout; None is unknown."""

    kind: str
    """`model`, or `tools`: everything between two model calls that the first one asked for."""
    words: str
    row: int
    """Transcript row; -1 if the call cannot be assigned to a message."""
    start_s: float | None = None
    end_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    failed: bool = False

    @property
    def seconds(self) -> float | None:
        if self.start_s is None or self.end_s is None:
            return None
        return self.end_s - self.start_s

    @property
    def tokens(self) -> str:
        """Prompt and completion tokens: "840 → 56 tok"; empty for tools."""
        if self.kind == OF_TOOLS:
            return ""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return formatting.ABSENT
        read, written = map(formatting.count, (self.prompt_tokens, self.completion_tokens))
        return f"{read} → {written} tok"


def spans_of(record: Trajectory, items: Sequence[Item]) -> list[Span]:
    """Return the model and tool calls of a trajectory in order. `items`: its transcript rows.

    If the model calls and the answers of a conversation do not match one to one (several choices,
    rewritten history), its spans have no row (-1) and its tool calls are left out."""
    calls, rows = record.model_calls, turn_rows(items)
    found: list[Span] = []
    names = [one.name for one in record.conversations] or ["main"]
    for number, name in enumerate(names):
        messages = record.conversations[number].messages if number else record.messages
        count = sum(message.role == "assistant" for message in messages)
        own = [call for call in calls if call.conversation == number]
        spans = _spans(record, messages, own if calls else [ModelCall()] * count, rows[:count])
        found += spans if number == 0 else [replace(s, words=f"{name}: {s.words}") for s in spans]
        rows = rows[count:]
    known = all(span.start_s is not None for span in found if span.kind != OF_TOOLS)
    return sorted(found, key=_order) if known and len(names) > 1 else found


def _order(span: Span) -> float:
    """Start of a span; a tool call of unknown time goes last."""
    return float("inf") if span.start_s is None else span.start_s


def _spans(
    record: Trajectory, messages: Sequence[Message], calls: Sequence[ModelCall], rows: Sequence[int]
) -> list[Span]:
    """Spans of one conversation, whose answers have the transcript rows `rows`."""
    turns = [message for message in messages if message.role == "assistant"]
    if len(calls) != len(turns) or len(rows) != len(turns):
        return [_model_span(call, number, -1) for number, call in enumerate(calls, 1)]
    results = {m.tool_call_id: m.content for m in messages if m.role == "tool"}
    found = []
    for place, (call, turn, row) in enumerate(zip(calls, turns, rows, strict=True)):
        span = _model_span(call, place + 1, row)
        found.append(span)
        if turn.tool_calls:
            following = calls[place + 1] if place + 1 < len(calls) else None
            until = following.start_s if following else record.duration_s
            found.append(_tool_span(turn, row + 1, span, until, results))
    return found


def _model_span(call: ModelCall, number: int, row: int) -> Span:
    span = Span("model", f"Turn {number}", row)
    known = {"prompt_tokens": call.prompt_tokens, "completion_tokens": call.completion_tokens}
    times = {"start_s": call.start_s, "end_s": call.end_s} if call.end_s else {}
    return replace(span, **known, **times)  # type: ignore[arg-type]


def _tool_span(
    turn: Message, row: int, model: Span, until: float, results: dict[str | None, str]
) -> Span:
    names = dict.fromkeys(call_words(call)[0] for call in turn.tool_calls)
    failed = any(is_error_result(results.get(call.get("id"), "")) for call in turn.tool_calls)
    span = Span(OF_TOOLS, ", ".join(names), row, failed=failed)
    if model.end_s is None or until < model.end_s:
        return span
    return replace(span, start_s=model.end_s, end_s=until)


def total_s(record: Trajectory, spans: Sequence[Span]) -> float:
    """Return the length of the time axis in seconds: the duration of the trajectory, or the end of
    its last span if that is later."""
    return max([record.duration_s, *(span.end_s or 0.0 for span in spans)])


def summary_words(record: Trajectory, spans: Sequence[Span]) -> str:
    """Describe the time of all calls: "3 model calls 12.4 s · tools 1.2 s · 14 s in all"."""
    models = [span for span in spans if span.kind == "model"]
    words = formatting.plural(len(models), "model call")
    known = [span.seconds for span in models if span.seconds is not None]
    if not known:
        return f"{words} · times were not recorded"
    tools = [s.seconds for s in spans if s.kind == OF_TOOLS and s.seconds is not None]
    parts = [f"{words} {formatting.duration(sum(known))}"]
    parts += [f"tools {formatting.duration(sum(tools))}"] if tools else []
    parts.append(f"{formatting.duration(total_s(record, spans))} in all")
    return " · ".join(parts)
