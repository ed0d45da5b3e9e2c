"""Import of traces: conversations of a file's model calls as groups of one training step."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from engine.integrations.importers.chat_messages import (
    WRONG,
    Source,
    TrajectoryBatch,
    as_scored,
    beginning_of,
    figures_of,
    id_of,
    title_of,
)
from engine.integrations.importers.traces.calls import (
    ModelCall,
    Span,
    Unreadable,
    calls_of,
    spans_of,
)
from engine.integrations.importers.traces.conversations import (
    TracedConversation,
    conversations_of,
    identity_of,
)
from engine.integrations.importers.traces.documents import HINT, Record, read_records
from engine.integrations.importers.traces.langfuse import (
    Score,
    calls_of_observation,
    is_langfuse,
    observations_of,
    scores_of,
)
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import Trajectory

T = TypeVar("T", Span, Record)
REWARD = "reward"
"""Name of the score that is a reward; every other score is a metric."""


class TracedCalls(NamedTuple):
    """Model calls and scores of a file, and the places of calls that could not be used."""

    calls: list[ModelCall]
    scores: list[Score]
    silent: list[str]
    """Places of model calls without recorded messages."""
    unreadable: list[Unreadable]


def open_traces(file: Path) -> Source | None:
    """Return a source for a file of traces; None if it holds something else. Raises ConfigError
    for a damaged line, and for a file without a readable model call."""
    records = read_records(file)
    if records is None:
        return None
    traced = _read(records)
    found = conversations_of(traced.calls)
    if not found:
        raise _no_calls(file, traced)
    groups, repeated = _groups(found, traced.scores)

    def lots() -> Iterator[TrajectoryBatch]:
        yield TrajectoryBatch("train", 1, groups)

    return Source(file.stem, 1, lots, _notes(traced, repeated))


def _read(records: list[Record]) -> TracedCalls:
    traced = TracedCalls([], [], [], [])
    for record in records:
        try:
            if is_langfuse(record.data):
                traced.scores.extend(scores_of(record))
                for one in observations_of(record):
                    _add(traced, one, calls_of_observation)
            else:
                for span in spans_of(record):
                    _add(traced, span, calls_of)
        except WRONG as error:
            raise ConfigError.of(
                "traces.damaged",
                "This line has no complete span.",
                HINT,
                where=record.where,
                detail=str(error)[:500],
            ) from error
    return traced


def _add(traced: TracedCalls, one: T, read: Callable[[T], list[ModelCall] | None]) -> None:
    """Add the calls of a span or observation; `read` returns them."""
    try:
        calls = read(one)
    except Unreadable as error:
        traced.unreadable.append(error)
        return
    traced.calls.extend(calls or [])
    if calls == []:
        traced.silent.append(one.where)


def _groups(
    conversations: list[TracedConversation], scores: list[Score]
) -> tuple[list[list[Trajectory]], int]:
    """Return groups of conversations that begin with the same messages, and the number of
    conversations that were equal to another one."""
    scored = _scored(conversations, scores)
    groups: dict[bytes, list[Trajectory]] = {}
    numbers: dict[bytes, int] = {}
    known: set[bytes] = set()
    for place, one in enumerate(conversations):
        identity = identity_of(one.messages)
        if identity in known:
            continue
        known.add(identity)
        start = identity_of(beginning_of(one.messages))
        siblings = groups.setdefault(start, [])
        group = numbers.setdefault(start, len(numbers))
        siblings.append(_trajectory(one, scored.get(place, {}), group, len(siblings)))
    return list(groups.values()), len(conversations) - len(known)


def _scored(
    conversations: list[TracedConversation], scores: list[Score]
) -> dict[int, dict[str, float]]:
    """Scores by name, of conversations by place. A score of an observation belongs to the
    conversation that ends with it, a score of a trace to the longest one of the trace."""
    ends = {one.call.id: place for place, one in enumerate(conversations)}
    longest: dict[str, int] = {}
    for place, one in enumerate(conversations):
        other = longest.get(one.call.trace)
        if other is None or len(one.messages) > len(conversations[other].messages):
            longest[one.call.trace] = place
    found: dict[int, dict[str, float]] = {}
    for score in scores:
        owner = ends.get(score.observation) if score.observation else longest.get(score.trace)
        if owner is not None:
            found.setdefault(owner, {})[score.name] = score.value
    return found


def _trajectory(
    one: TracedConversation, scores: dict[str, float], group: int, index: int
) -> Trajectory:
    metrics, _ = figures_of({name: v for name, v in scores.items() if name != REWARD})
    reward = figures_of(scores)[0].get(REWARD)
    details = {"Model": one.call.model, "Trace": one.call.trace}
    made = Trajectory(
        id=id_of("train", 1, group, index),
        split="train",
        step=1,
        group=group,
        index=index,
        scenario_id=f"group-{group + 1}",
        title=title_of(one.messages, f"group {group + 1}"),
        reward=reward,
        parts={} if reward is None else {REWARD: reward},
        turns=sum(message.role == "assistant" for message in one.messages),
        truncated=one.call.answer.truncated,
        messages=one.messages,
        metrics=metrics,
        tools=one.call.tools,
        started_at=one.call.start_s,
        output="\n".join(f"{name}: {value}" for name, value in details.items() if value),
    )
    return as_scored(made)


def _notes(traced: TracedCalls, repeated: int) -> tuple[str, ...]:
    notes = []
    if repeated:
        notes.append(f"Conversations equal to another one, kept once: {repeated}.")
    if traced.silent:
        places = f"{len(traced.silent)} (the first: {traced.silent[0]})"
        notes.append(f"Model calls without recorded messages, omitted: {places}.")
    if traced.unreadable:
        places = f"{len(traced.unreadable)} (the first: {traced.unreadable[0].where})"
        notes.append(f"Model calls with incomplete messages, omitted: {places}.")
    return tuple(notes)


def _no_calls(file: Path, traced: TracedCalls) -> ConfigError:
    if traced.silent or traced.unreadable:
        first = str((traced.unreadable or traced.silent)[0])
        return ConfigError.of(
            "traces.no_messages",
            "No model call of this file has recorded messages.",
            "Let the tracer record the content of messages, without a limit of length, and export "
            "again.",
            where=str(file),
            detail=first,
        )
    return ConfigError.of(
        "traces.no_model_call", "No span of this file is a model call.", HINT, where=str(file)
    )
