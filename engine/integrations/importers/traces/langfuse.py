"""Observations, traces and scores exported from Langfuse, in camel case (API) or snake case
(storage exports)."""

import re
from typing import Any, NamedTuple

from engine.integrations.importers.chat_messages import WRONG
from engine.integrations.importers.traces.attributes import decoded, seconds_of
from engine.integrations.importers.traces.calls import ModelCall, Unreadable
from engine.integrations.importers.traces.documents import Record
from engine.integrations.importers.traces.messages import (
    answers_of_payload,
    prompt_of_payload,
    tools_of_payload,
)

CAPITAL = re.compile(r"(?=[A-Z])")


class Score(NamedTuple):
    """Numeric score of a trace, or of one observation in it (`observation` is empty if not)."""

    trace: str
    observation: str
    name: str
    value: float


def is_langfuse(data: dict[str, Any]) -> bool:
    """Whether an object is an observation or trace of Langfuse, not a span with attributes."""
    return "attributes" not in data and ("observations" in data or "type" in data)


def observations_of(record: Record) -> list[Record]:
    """Observations of a trace, with its session, or the record itself."""
    nested = record.data.get("observations")
    if not isinstance(nested, list):
        return [record]
    shared = {"traceId": record.data.get("id"), "sessionId": _field(record.data, "sessionId")}
    return [Record(record.where, {**shared, **one}) for one in nested if isinstance(one, dict)]


def scores_of(record: Record) -> list[Score]:
    """Numeric and boolean scores of a trace; texts and categories are omitted."""
    found = []
    for one in record.data.get("scores") or []:
        if isinstance(one, dict) and isinstance(one.get("value"), int | float):
            trace = str(record.data.get("id") or _field(one, "traceId"))
            observation = str(_field(one, "observationId") or "")
            found.append(Score(trace, observation, str(one.get("name")), float(one["value"])))
    return found


def calls_of_observation(record: Record) -> list[ModelCall] | None:
    """Return the model calls of an observation; an empty list if its messages are missing, None if
    it is no generation. Raises Unreadable."""
    data = record.data
    if str(data.get("type")).upper() != "GENERATION":
        return None
    try:
        given = decoded(data.get("input"))
        prompt = prompt_of_payload(given)
        tools = tools_of_payload(given.get("tools")) if isinstance(given, dict) else []
        answers = answers_of_payload(data.get("output"))
        start_s = seconds_of(_field(data, "startTime"))
    except WRONG as error:
        raise Unreadable(record.where, error) from error
    if not prompt:
        return []
    trace, name = str(_field(data, "traceId") or ""), str(data.get("id") or "")
    thread = str(_field(data, "sessionId") or trace or name)
    model = str(data.get("model") or _field(data, "providedModelName") or "")
    return [
        ModelCall(thread, trace, name, start_s, prompt, answer, tools, model) for answer in answers
    ]


def _field(data: dict[str, Any], name: str) -> Any:
    return data.get(name, data.get(CAPITAL.sub("_", name).lower()))
