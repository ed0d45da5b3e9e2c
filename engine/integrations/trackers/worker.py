"""Process of one tracker: `PYTHON -m engine.integrations.trackers.worker NAME LINE LIFE`, run in
the environment with its client library.

Requests are one JSON message per line (engine/runtime/child.py), handled in order. `open`
(settings, key, run) returns the `seq` up to which the service has everything, if known. `send`
returns after delivery, with the number of permanently rejected items. `close` sends the state of
the run. The key stays in memory and is never part of a response. The process has a lower priority
than a run.
"""

import base64
import importlib
import json
import os
import re
import socket
import sys
import traceback
from typing import Any, Protocol
from urllib.parse import unquote

from engine.integrations.trackers.sinks.errors import Lost, SinkError
from engine.runtime.life_pipe import exit_with_engine, hide_from_peers

NICE = 5
"""Niceness of the process: on a core that it shares with the trainer it gets about a quarter, which
is enough."""
SHORTEST = 6
"""Minimum length of a part of a key that is masked; shorter ones may be common words."""


class Sink(Protocol):
    """Interface of a tracker. Each call returns when the service has received the data, or raises
    SinkError if a retry may help."""

    url: str
    """Address of the run at the service; empty if unknown."""

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> int | None: ...

    def send(self, items: list[dict[str, Any]]) -> Lost: ...

    def close(self, state: str) -> None: ...


class RequestHandler:
    """Handler of requests, for one sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._key = sink, ""

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._do(message)}
        except Exception as error:  # noqa: BLE001 - libraries raise what they like; all of it is told
            sys.stderr.write(_without("".join(traceback.format_exception(error)), self._key))
            return {"error": self._problem(error)}

    def _do(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["op"]:
            case "open":
                self._key = message["key"]
                held = self._sink.open(message["settings"], self._key, message["run"])
                return {"seq": held, "url": self._sink.url}
            case "send":
                lost = self._sink.send(message["items"])
                words = _without(lost.words, self._key)[:500]
                return {"url": self._sink.url, "refused": lost.count, "words": words}
            case "close":
                self._sink.close(message["state"])
        return {"url": self._sink.url}

    def _problem(self, error: Exception) -> dict[str, str]:
        """Return the problem of an error, worded to follow the tracker's name."""
        problem = error if isinstance(error, SinkError) else SinkError("failed", unforeseen(error))
        return {
            "code": f"track.{problem.code}",
            "message": _without(problem.words, self._key)[:500],
            "hint": problem.hint,
            "detail": _without(str(error), self._key)[:2000],
        }


def unforeseen(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0]
    return f"raised an error: {type(error).__name__}{': ' if message else ''}{message}."


def _without(text: str, key: str) -> str:
    """Mask all parts of the key in a text, also percent-decoded and in base64."""
    sent = unquote(key)
    coded = base64.b64encode(key.encode()).decode()
    parts = {key, sent, coded, *_parts(key), *_parts(sent), *map(unquote, _parts(key))}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "…") if len(part) >= SHORTEST else text
    return text


def _parts(key: str) -> list[str]:
    return re.split(r"[:=,\s]+", key)


def main() -> None:
    name, line, life = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    hide_from_peers()
    exit_with_engine(life)
    os.nice(NICE)
    module = "otlp" if name in ("otel", "langfuse") else name
    sink = importlib.import_module(f"engine.integrations.trackers.sinks.{module}_sink").Sink()
    handler = RequestHandler(sink)
    with socket.socket(fileno=line) as connection, connection.makefile("rwb") as stream:
        for text in stream:
            message = json.loads(text)
            if message["op"] != "cancel":
                answer = {"id": message["id"], **handler.answer(message)}
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
