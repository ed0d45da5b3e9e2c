"""Sink for traces over OTLP/HTTP with protobuf: for any OpenTelemetry collector, and for Langfuse
(/api/public/otel, basic authentication with public and secret key).

Spans are made from stored data with ids given by the engine, not recorded live. They are therefore
encoded like the SDK's exporter does, and each response is checked.
"""

import base64
import gzip
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from engine.integrations.trackers.sinks.errors import Lost, SinkError, refused, unreachable

TIMEOUT_S = 15.0
PATH = "/v1/traces"
LANGFUSE = "/api/public/otel"
FOR_GOOD = (400, 413, 422)
"""Status codes of permanent rejection: the cause is the content of the request, so a retry would
fail again."""
KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


class Sink:
    """HTTP connection to a collector. Spans that are sent again have the same ids."""

    url = ""

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> None:
        self._session = requests.Session()
        self._session.trust_env = False  # no .netrc: whoever is to be told got its key from us
        if "host" in settings:
            self._endpoint = settings["host"] + LANGFUSE + PATH
            self._session.headers.update(_langfuse(key))
        else:
            self._endpoint = traces_at(settings["endpoint"])
            self._session.headers.update(headers_in(key))
        self._session.headers["Content-Type"] = "application/x-protobuf"
        self._session.headers["Content-Encoding"] = "gzip"
        attributes = {"service.name": "atelier", "service.version": run["version"]}
        self._resource = Resource(attributes)
        self._scope = InstrumentationScope("atelier", run["version"])

    def send(self, items: list[dict[str, Any]]) -> Lost:
        """Send each trajectory in a request of its own, since collectors limit its size. Returns
        the rejected spans."""
        lost = [one for item in items for one in self._post([self._span(s) for s in item["spans"]])]
        return Lost(sum(one.count for one in lost), lost[-1].words) if lost else Lost()

    def close(self, state: str) -> None:
        """Do nothing: traces have no final state of a run."""

    def _post(self, spans: list[ReadableSpan]) -> Iterator[Lost]:
        """Send spans. A permanently rejected batch is sent again in halves, since parts of it may
        be small or valid enough."""
        answer = self._answer(spans)
        if answer.status_code not in FOR_GOOD:
            if rejected := _rejected(answer, len(spans)):
                yield rejected
        elif len(spans) > 1:
            yield from self._post(spans[: len(spans) // 2])
            yield from self._post(spans[len(spans) // 2 :])
        else:
            yield Lost(1, f"returned HTTP {answer.status_code} {answer.reason}.")

    def _answer(self, spans: list[ReadableSpan]) -> requests.Response:
        body = gzip.compress(encode_spans(spans).SerializeToString())
        try:
            return self._session.post(
                self._endpoint, data=body, timeout=TIMEOUT_S, allow_redirects=False
            )
        except requests.RequestException as error:
            raise unreachable(self._endpoint, error) from error

    def _span(self, span: dict[str, Any]) -> ReadableSpan:
        parent = _context(span["trace_id"], span["parent_id"]) if span["parent_id"] else None
        events = [Event(e["name"], e["attributes"], e["at_ns"]) for e in span["events"]]
        failed = Status(StatusCode.ERROR, span["error"])
        return ReadableSpan(
            name=span["name"],
            context=_context(span["trace_id"], span["span_id"]),
            parent=parent,
            resource=self._resource,
            attributes=span["attributes"],
            events=events,
            kind=KINDS[span["kind"]],
            status=failed if span["error"] else Status(StatusCode.UNSET),
            start_time=span["start_ns"],
            end_time=span["end_ns"],
            instrumentation_scope=self._scope,
        )


def traces_at(endpoint: str) -> str:
    """Return the URL for traces; `endpoint` may be a base URL as in OTEL_EXPORTER_OTLP_ENDPOINT."""
    return endpoint if urlsplit(endpoint).path.endswith(PATH) else endpoint.rstrip("/") + PATH


def headers_in(key: str) -> dict[str, str]:
    """Parse a `key` as OTEL_EXPORTER_OTLP_HEADERS: `name=value,name=value`, percent-encoded."""
    pairs = (pair.partition("=") for pair in key.split(",") if "=" in pair)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}


def _langfuse(key: str) -> dict[str, str]:
    if ":" not in key:
        words = "needs a public and a secret key."
        hint = "Enter both as PUBLIC:SECRET under Settings, Tracker keys."
        raise SinkError("key", words, hint)
    coded = base64.b64encode(key.encode()).decode()
    return {"Authorization": f"Basic {coded}", "x-langfuse-ingestion-version": "4"}


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), False, TraceFlags(TraceFlags.SAMPLED))


def _rejected(answer: requests.Response, spans: int) -> Lost | None:
    """Return the rejected spans of a partial success, or None. Raises SinkError on failure."""
    if answer.status_code in (401, 403):
        raise refused(f"HTTP {answer.status_code}", answer.text[:500])
    if answer.status_code != 200:
        words = f"returned HTTP {answer.status_code} {answer.reason}."
        raise SinkError("answer", words, detail=answer.text[:500])
    try:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    except DecodeError:
        return None  # Langfuse answers in JSON: 200 is its word for all of it
    if partial.rejected_spans:
        why = partial.error_message.strip().rstrip(".") or "no reason given"
        words = f"rejected {partial.rejected_spans} of {spans} spans: {why}."
        return Lost(partial.rejected_spans, words)
    return None
