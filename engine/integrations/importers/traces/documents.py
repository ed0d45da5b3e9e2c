"""Reader of JSON documents from a file of traces: JSON Lines, one document, or several after each
other. Recognises traces by their content."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.integrations.importers.jsonl import read_lines
from engine.protocol.problems import ConfigError
from engine.runtime.text import replace_surrogates
from engine.trust.files import read_regular

MOST_BYTES = 2**30
"""Maximum size of a line, and of a file that is not JSON Lines."""
SPACE = re.compile(r"[\s,]*")
MARK = re.compile(r'"(resourceSpans|resource_spans|traceId|trace_id|context\.trace_id)"')
SPAN_LISTS = ("resourceSpans", "resource_spans")
OBSERVATIONS = {
    "GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING",
    "GUARDRAIL",
}  # fmt: skip
HINT = (
    "Export the spans as OTLP JSON, from Phoenix, or as Langfuse observations, in JSON or JSON "
    "Lines."
)


class Record(NamedTuple):
    """JSON object of a file, with its place `FILE:LINE`."""

    where: str
    data: dict[str, Any]


def read_records(file: Path) -> list[Record] | None:
    """Read the spans, observations and traces of a file; None if its first document is of another
    kind. Raises ConfigError with the line of a damaged or foreign document."""
    documents = _documents(file)
    first = next(documents, None)
    if first is None or not any(map(_is_trace, _entries(first[1]))):
        return None
    records = []
    for number, document in [first, *documents]:
        where = f"{file}:{number}"
        entries = _entries(document)
        if not all(isinstance(one, dict) for one in entries):
            raise _problem(where, "it is not an object, nor a list of objects")
        records += [Record(where, one) for one in entries]
    return records


def _entries(document: Any) -> list[Any]:
    """Entries of a list, of a page of an API (`{"data": […]}`), or the document itself."""
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        return document["data"]
    return document if isinstance(document, list) else [document]


def _is_trace(data: Any) -> bool:
    if not isinstance(data, dict) or "messages" in data:
        return False
    context = data.get("context")
    trace = any(key in data for key in ("traceId", "trace_id", "context.trace_id"))
    attributes = "attributes" in data or any(key.startswith("attributes.") for key in data)
    return (
        any(isinstance(data.get(name), list) for name in SPAN_LISTS)
        or isinstance(data.get("observations"), list)
        or (attributes and (trace or (isinstance(context, dict) and "trace_id" in context)))
        or (trace and str(data.get("type")).upper() in OBSERVATIONS)
    )


def _documents(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield line numbers and documents. A first line that is no document, in a file without
    trace ids, ends the iteration."""
    for place, (number, line) in enumerate(read_lines(file, MOST_BYTES)):
        try:
            document = _parsed(line)
        except ValueError as error:
            if place == 0:
                yield from _sequence(file)
                return
            raise _problem(f"{file}:{number}", str(error)) from error
        yield number, document


def _sequence(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield documents that span several lines, with the line where each begins."""
    try:
        text = read_regular(file, MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError):
        return  # the reader of chat messages names the reason
    if not MARK.search(text):
        return
    decoder, place, line = json.JSONDecoder(parse_constant=_refuse), 0, 1
    while (start := _after_space(text, place)) < len(text):
        line += text.count("\n", place, start)
        try:
            document, place = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _problem(f"{file}:{error.lineno}", error.msg) from error
        except (ValueError, RecursionError) as error:
            raise _problem(f"{file}:{line}", str(error)) from error
        yield line, replace_surrogates(document)
        line += text.count("\n", start, place)


def _after_space(text: str, place: int) -> int:
    found = SPACE.match(text, place)
    return found.end() if found else place


def _parsed(line: str) -> Any:
    try:
        return replace_surrogates(json.loads(line, parse_constant=_refuse))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _problem(where: str, reason: str) -> ConfigError:
    return ConfigError.of(
        "traces.damaged", f"This line has no complete span: {reason[:200]}.", HINT, where=where
    )
