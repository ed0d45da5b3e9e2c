"""OpenAI-compatible chat provider on localhost, scripted, with tool calls."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROMPT_TOKENS, COMPLETION_TOKENS = 100, 50


@dataclass
class ChatScript:
    """Behaviour of the provider.

    `moods` are used up one per request, then `mood` applies. In mood `wait` it blocks requests
    until `over` is set, and never answers.
    """

    mood: str = "good"
    moods: list[str] = field(default_factory=list)
    says: str = "abcdefgh"
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def message(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a tool call first, if there are tools, then text."""
        has_result = any(message["role"] == "tool" for message in body["messages"])
        if not body.get("tools") or has_result:
            return {"role": "assistant", "content": self.says}
        name = body["tools"][0]["function"]["name"]
        call = {"name": name, "arguments": json.dumps({"word": "seven"})}
        calls = [{"id": "call_1", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}


class Handler(BaseHTTPRequestHandler):
    script: ChatScript
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        script = self.script
        script.asked.append(body)
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        mood = script.moods.pop(0) if script.moods else script.mood
        if mood == "wait":
            script.over.wait()
            self.close_connection = True
            return None
        if mood == "garbage":
            return self._send(200, {"choices": "none of them", "usage": 3})
        if mood != "good":
            return self._send(int(mood), {"error": {"message": "no", "type": "x", "code": None}})
        message = script.message(body)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": COMPLETION_TOKENS,
            "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        }
        choice = {"index": 0, "finish_reason": finish, "message": message}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        return self._send(200, {**answer, "choices": [choice], "usage": usage})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def chat_provider(script: ChatScript) -> Iterator[ChatScript]:
    """Serve until the block ends."""

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
        script.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
