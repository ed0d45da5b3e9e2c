"""Scripted OpenAI-compatible provider on loopback that answers correctly or with a chosen fault.

Trajectories are parsed from the prompt and graded by the number in their text
(`worth=0.7`), so a test knows the true scores. A request is billed once per idempotency key.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ATTEMPT = re.compile(r"<<\w+ attempt (\w+)>>\n(.*?)\n<<\w+ end>>", re.DOTALL)
WORTH = re.compile(r"worth=(-?[\d.]+)")
PROMPT_TOKENS, COMPLETION_TOKENS = 100, 50

Grade = Callable[[int, str], float]
"""(position in the prompt, text of the trajectory) → score."""


def score_in_text(position: int, text: str) -> float:
    scores = WORTH.findall(text)
    return float(scores[-1]) if scores else 0.5


@dataclass
class Script:
    """Behaviour of the provider; `moods` holds one behaviour per request, then "good"."""

    moods: list[str] = field(default_factory=list)
    grade: Grade = score_in_text
    criteria: tuple[str, ...] = ()
    """Criteria of the rubric; each gets the grade of the trajectory."""
    suggestion: str = "```\nBetter words.\n```"
    """Reply to a request for an improved rubric."""
    writes: Callable[[list[dict[str, str]]], str] = lambda messages: ""
    """Reply to a request to write project files."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    billed: dict[str, int] = field(default_factory=dict)
    """Idempotency key → number of billed replies."""
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    script: Script
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "scripted"}]}).encode()
        self._head(200, len(body), {})
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        script = self.script
        script.asked.append(body)
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        mood = script.moods.pop(0) if script.moods else "good"
        match mood:
            case "429":
                return self._error(429, "slow down", {})
            case "429 after":
                return self._error(429, "slow down", {"retry-after": "0.2"})
            case "500":
                return self._error(500, "our fault", {})
            case "overflow":
                words = "This model's maximum context length is 10 tokens. context_length_exceeded"
                return self._error(400, words, {}, "context_length_exceeded")
            case "reset":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return None
        key = self.headers.get("Idempotency-Key", "")
        script.billed[key] = script.billed.get(key, 0) + 1
        return self._answer(self._reply(body["messages"], mood), mood)

    def _reply(self, messages: list[dict[str, str]], mood: str) -> str:
        if "improve a rubric" in messages[0]["content"]:
            return self.script.suggestion
        if "You prepare the training" in messages[0]["content"]:
            return self.script.writes(messages)
        attempts = ATTEMPT.findall(messages[1]["content"])
        entries = [
            {"id": name, "score": self.script.grade(position, text), "reason": f"I see {name}.",
             "quotes": [text.split("\n")[-1][:40], "words that are nowhere"]}
            for position, (name, text) in enumerate(attempts)
        ]  # fmt: skip
        for entry in entries:
            if self.script.criteria:
                entry["criteria"] = dict.fromkeys(self.script.criteria, entry["score"])
        match mood:
            case "one missing":
                entries = entries[:-1]
            case "permuted":
                entries = entries[::-1]
            case "out of range":
                entries[0]["score"] = 7
            case "scale of ten":
                for entry in entries:
                    entry["score"] = round(10 * entry["score"])
            case "nan":
                entries[0]["score"] = float("nan")
            case "twice":
                entries.append({**entries[0], "score": 1.0})
            case "stranger":
                entries.append({**entries[0], "id": "??"})
        text = json.dumps({"attempts": entries})
        if mood == "draft":
            return f"<think>At first sight: {text} But the second one"
        if mood == "two answers":
            other = [{**entry, "score": 0.5} for entry in entries]
            return f"{text}\nOr rather:\n{json.dumps({'attempts': other})}"
        if mood == "prose":
            return f"Let me think {{about it}}.\n```json\n{text}\n```\nI hope this helps!"
        return text[: len(text) // 2] if mood == "truncated" else text

    def _answer(self, text: str, mood: str) -> None:
        is_slow = mood == "drip"
        finish = {"cut": "length", "draft": "length", "filtered": "content_filter"}
        usage = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": COMPLETION_TOKENS,
            "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        }
        if mood == "negative usage":
            usage = {name: -count for name, count in usage.items()}
        message = {"role": "assistant", "content": text}
        body = json.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "m",
                "choices": [
                    {"index": 0, "finish_reason": finish.get(mood, "stop"), "message": message}
                ],
                **({} if mood == "no usage" else {"usage": usage}),
            }
        ).encode()
        self._head(200, len(body), {})
        try:
            for start in range(0, len(body), 16 if is_slow else len(body)):
                self.wfile.write(body[start : start + (16 if is_slow else len(body))])
                self.wfile.flush()
                time.sleep(0.2 if is_slow else 0)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _error(
        self, status: int, words: str, headers: dict[str, str], code: str | None = None
    ) -> None:
        body = json.dumps({"error": {"message": words, "type": "x", "code": code}}).encode()
        self._head(status, len(body), headers)
        self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Suppress the access log."""


@contextmanager
def provider(script: Script) -> Iterator[Script]:
    """Serve `script` on a loopback port until the block ends."""

    class Bound(Handler):
        pass

    Bound.script = script
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
