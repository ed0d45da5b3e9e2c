"""OTLP collector over HTTP in a thread: accepts traces, rejects them, or never responds."""

import base64
import contextlib
import gzip
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

READER = """
import base64, json, sys
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
for line in sys.stdin:
    read = ExportTraceServiceRequest.FromString(base64.b64decode(line))
    print(json.dumps(MessageToDict(read)))
"""


@dataclass
class Collector:
    """Started collector; `mood` is the HTTP status of every response, or `silence`."""

    url: str
    mood: int | str = 200
    reply: bytes = b""
    bodies: list[bytes] = field(default_factory=list)
    """Bodies of accepted requests, decompressed."""
    wrong_key: str = ""
    """Requests with this key get status 401."""
    most_bytes: int = 0
    """Larger requests get status 413; 0 for no limit."""
    spoilt: bytes = b""
    """Requests that contain this get status 400."""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def status(self, body: bytes) -> int:
        """Return the response status of a request."""
        if self.most_bytes and len(body) > self.most_bytes:
            return 413
        if self.spoilt and self.spoilt in body:
            return 400
        return int(self.mood)

    def spans(self, python: Path) -> list[dict[str, Any]]:
        """Return all accepted spans with plain attributes, parsed by OpenTelemetry's protobuf
        (with a Python that has it).
        """
        lines = "".join(base64.b64encode(body).decode() + "\n" for body in self.bodies)
        argv = [str(python), "-c", READER]
        done = subprocess.run(argv, input=lines, capture_output=True, text=True, check=True)
        return [
            plain(span)
            for line in done.stdout.splitlines()
            for resource in json.loads(line)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


def plain(span: dict[str, Any]) -> dict[str, Any]:
    values = {one["key"]: _value(one["value"]) for one in span.get("attributes", [])}
    events = [
        {**event, "attributes": {e["key"]: _value(e["value"]) for e in event["attributes"]}}
        for event in span.get("events", [])
    ]
    return {**span, "attributes": values, "events": events}


def _value(value: dict[str, Any]) -> Any:
    kind, inner = next(iter(value.items()))
    return int(inner) if kind == "intValue" else inner


@contextlib.contextmanager
def run_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked += 1
            if collector.mood == "silence":
                collector.over.wait()
                return
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status = collector.status(body)
            if collector.wrong_key and collector.wrong_key in str(self.headers):
                status = 401
            if status == 200:
                collector.bodies.append(body)
                collector.paths.append(self.path)
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            self.send_response(status)
            self.send_header("Content-Length", str(len(collector.reply)))
            self.end_headers()
            self.wfile.write(collector.reply)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
