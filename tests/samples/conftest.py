"""Files of a sample as modules and lines, and a scripted model."""

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SAMPLES = Path(__file__).parents[2] / "resources" / "samples"
DATA = ("scenarios/train.jsonl", "scenarios/validation.jsonl", "demonstrations.jsonl")


def load_module(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def load_importable(patch: pytest.MonkeyPatch, folder: Path, name: str) -> ModuleType:
    """Load a module that other modules of its folder can import under this name during the test."""
    loaded = load_module(folder, name)
    patch.setitem(sys.modules, name, loaded)
    return loaded


def assert_make_data_is_reproducible(
    patch: pytest.MonkeyPatch, maker: ModuleType, folder: Path, elsewhere: Path
) -> None:
    """Check that `make_data` of the sample writes exactly the files in its folder."""
    patch.setattr(maker, "HERE", elsewhere)
    maker.main()
    for name in DATA:
        assert (elsewhere / name).read_bytes() == (folder / name).read_bytes()


def lines_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def message_of(words: str | tuple[str, dict[str, Any]]) -> dict[str, Any]:
    if isinstance(words, str):
        return {"role": "assistant", "content": words}
    function = {"name": words[0], "arguments": json.dumps(words[1])}
    call = {"id": "call", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Scripted(BaseHTTPRequestHandler):
    """Chat completions from a list of texts or tool calls (name, arguments); records the messages
    of each request."""

    words: list[str | tuple[str, dict[str, Any]]]
    asked: list[list[dict[str, str]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body["messages"])
        message = message_of(self.words[len(self.asked) - 1])
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "policy"}
        data = json.dumps({**answer, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def scripted() -> Iterator[tuple[type[Scripted], SimpleNamespace]]:
    class Model(Scripted):
        words, asked = [], []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    yield Model, SimpleNamespace(base_url=address, api_key="key", name="policy")
    server.shutdown()
    server.server_close()
    thread.join()
