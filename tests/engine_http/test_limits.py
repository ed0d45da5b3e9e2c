"""Large requests, many connections and slow ones: the engine keeps responding to others, and its
run continues to its end."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.protocol.events.run import RunFinished
from engine.protocol.records.runs import RunSummary
from engine.server.connections import HEADER_S, MOST_UNPROVEN, share_of
from tests.engine_http.conftest import AGENT, Engine, make_project, start_engine, stop_engine, until

BUSY_S = 6.0
LENDING = AGENT.replace(
    'return {"reward"',
    """if scenario["id"] == "s0":
        import asyncio, os, pathlib
        scratch = pathlib.Path(model.api_key)
        scratch.write_text(model.api_key)
        scratch.replace("key")
        while not os.path.exists("enough"):
            await asyncio.sleep(0.1)
    return {"reward\"""",
)
"""Agent that writes its key to a file on scenario `s0` and waits, so that the test can use the
key.
"""


PINGS = """
import http.client, sys, threading, time
port, token = sys.argv[1:]
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
waits = []
while not stopped.is_set():
    request_start = time.perf_counter()
    connection.request("GET", "/nothing", headers={"Authorization": "Bearer " + token})
    connection.getresponse().read()
    waits.append(time.perf_counter() - request_start)
    time.sleep(0.005)
print(max(waits), len(waits))
"""


class Pings:
    """Process that requests a missing route repeatedly, and measures the response times."""

    def __init__(self, engine: Engine) -> None:
        self.longest_s, self.count = 0.0, 0
        self._command = [sys.executable, "-c", PINGS, str(engine.port), engine.token]

    def __enter__(self) -> "Pings":
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        output, _none = self._process.communicate("")
        longest, count = output.split()
        self.longest_s, self.count = float(longest), int(count)


def send(
    engine: Engine,
    key: str,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Return status and body of the response; status 0 if the connection closes before it."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    all_headers = {"Authorization": f"Bearer {key}", **(headers or {})}
    try:
        chunked = not isinstance(body, bytes) and "Content-Length" not in all_headers
        connection.request(method, path, body, all_headers, encode_chunked=chunked)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else {}
    except (ConnectionError, TimeoutError):
        return 0, {}
    finally:
        connection.close()


def blocks(count: int) -> Iterator[bytes]:
    """Return a body of `count` blocks of 1 MiB."""
    return (b" " * 2**20 for _ in range(count))


@pytest.fixture
def active_rollout(
    engine: Engine, workspace: Path, tiny_model: Path
) -> Iterator[tuple[RunSummary, str]]:
    """Active run, and the key of one of its rollouts."""
    project = make_project(workspace / "lending", tiny_model, LENDING)
    run = engine.train(project, **{"train.steps": 3, "agent.timeout_s": 120})
    file = project / "key"
    until(file.exists, 60)
    yield run, file.read_text()
    (project / "enough").touch()


def test_every_route_has_a_size_limit(
    engine: Engine, active_rollout: tuple[RunSummary, str]
) -> None:
    run, key = active_rollout
    declared = {"Content-Length": str(800 * 2**20)}
    for method, path in (
        ("POST", "/runs"), ("PUT", "/project"), ("PUT", "/scenarios"), ("POST", "/keys"),
        ("POST", f"/runs/{run.id}/outside/train"), ("POST", "/sync/commit"),
        ("PUT", "/sync/contents/x"), ("PUT", "/sync/contents/x?bytes=10&offset=0"),
        ("GET", "/engine"),
    ):  # fmt: skip
        status, answer = send(engine, engine.token, method, path, blocks(3), declared)
        assert (status, answer.get("code")) == (413, "request.too_long"), (path, answer)
        assert "MB" in answer["message"] or "bytes" in answer["message"]
    for path in ("/v1/chat/completions", "/v1/responses"):
        status, answer = send(engine, key, "POST", path, blocks(3), declared)
        assert (status, answer["error"]["code"]) == (413, "request.too_long")
        status, answer = send(engine, key, "POST", path, blocks(3))  # counted while received
        assert (status, answer["error"]["code"]) == (413, "request.too_long")
    for body in ({"headers": declared}, {}):
        status, answer = send(engine, key, "POST", "/v1/messages", blocks(3), **body)
        assert (status, answer["type"]) == (413, "error")  # the form of Anthropic
        assert answer["error"]["type"] == "request_too_large"
    status, answer = send(engine, engine.token, "POST", "/runs", blocks(3))
    assert (status, answer["code"]) == (413, "request.too_long")


def attacks(engine: Engine, key: str) -> list[Callable[[], int]]:
    """Return requests to be sent repeatedly; each returns the response's status."""
    user = {"role": "user", "content": "x"}

    def ask(body: dict[str, Any]) -> Callable[[], int]:
        data = json.dumps(body).encode()
        return lambda: send(engine, key, "POST", "/v1/chat/completions", data)[0]

    long = ask({"messages": [{"role": "user", "content": "word " * 200_000}]})
    many = ask({"messages": [user] * 9_999})
    values = ask({"messages": [{**user, "extra": [[]] * 240_000}]})
    deep = ask({"messages": [{**user, "extra": json.loads("[" * 90 + "]" * 90)}] * 4_000})
    ten = ask({"messages": [{"role": "user", "content": "word " * 2_000_000}]})
    huge = {"Content-Length": str(800 * 2**20)}
    return [
        long, many, values, deep, ten,
        lambda: send(engine, key, "POST", "/v1/chat/completions", blocks(800), huge)[0],
        lambda: send(engine, key, "POST", "/v1/chat/completions", blocks(50))[0],
        lambda: send(engine, engine.token, "POST", "/runs", blocks(800), huge)[0],
    ]  # fmt: skip


def test_large_requests_do_not_block_others(
    engine: Engine, active_rollout: tuple[RunSummary, str]
) -> None:
    run, key = active_rollout
    project = Path(run.project_path)
    statuses: dict[int, int] = {}
    process = psutil.Process(engine.process.pid)
    before = peak = process.memory_info().rss
    end = time.monotonic() + BUSY_S

    def repeat(attack: Callable[[], int]) -> None:
        while time.monotonic() < end:
            status = attack()
            statuses[status] = statuses.get(status, 0) + 1

    threads = [threading.Thread(target=repeat, args=(one,)) for one in attacks(engine, key)]
    with Pings(engine) as pings:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.05)
    print(
        f"longest wait {1000 * pings.longest_s:.0f} ms in {pings.count} pings under attack; "
        f"memory {(peak - before) / 2**20:+.0f} MB; answers {statuses}"
    )
    assert statuses.keys() <= {0, 200, 400, 413, 429}
    assert pings.longest_s < 1  # the cores are shared with the attackers
    assert peak - before < 400 * 2**20
    (project / "enough").touch()
    assert isinstance(engine.wait(run)[-1], RunFinished)


def test_open_requests_per_key_are_limited(
    engine: Engine, active_rollout: tuple[RunSummary, str]
) -> None:
    """Requests that never send their body occupy slots; further ones get status 429."""
    _, key = active_rollout
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{engine.port}\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: 100\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(64 + 256):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", engine.port)))
            one.sendall(head)
        until(lambda: send(engine, key, "POST", "/v1/chat/completions", b"{}")[0] == 429)
        status, answer = send(engine, key, "POST", "/v1/messages", b"{}")
        assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
    until(lambda: send(engine, key, "POST", "/v1/chat/completions", b"{}")[0] == 400)


DESCRIPTORS = 512
FEW = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")


def test_idle_and_slow_connections_do_not_affect_a_run(
    workspace: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """400 connections without a token and 100 that send their head byte by byte.

    512 descriptors.
    """
    log = tmp_path / "engine.log"
    with log.open("wb") as stderr:
        engine = start_engine(workspace, FEW, stderr)
    try:
        run = engine.train(make_project(workspace / "letters", tiny_model), **{"train.steps": 8})
        engine.wait_for(run, "step.started")
        process, used = psutil.Process(engine.process.pid), 0
        with Pings(engine) as pings, contextlib.ExitStack() as stack:
            idle = [stack.enter_context(connect(engine)) for _ in range(400)]
            slow = [stack.enter_context(connect(engine)) for _ in range(100)]
            started_at = time.monotonic()
            while time.monotonic() - started_at < HEADER_S + 2:
                for one in slow:
                    with contextlib.suppress(OSError):
                        one.send(b"GET /engine HTTP/1.1\r\nX: "[:1])
                used = max(used, process.num_fds() if os.geteuid() == 0 else 0)
                time.sleep(0.25)
            assert engine.call(lambda c: c.info()).pid == process.pid
            still = sum(is_open(one) for one in (*idle, *slow))
        events = engine.wait(run)
        lines = log.read_text().splitlines()
        print(
            f"{used} of {DESCRIPTORS} descriptors; {still} of 500 connections left after "
            f"{HEADER_S + 2:g} s; {len(lines)} lines in the log; longest wait "
            f"{1000 * pings.longest_s:.0f} ms"
        )
        assert isinstance(events[-1], RunFinished)
        assert used < DESCRIPTORS - 100
        assert share_of(DESCRIPTORS) <= DESCRIPTORS // 2
        assert still == 0
        assert len(lines) < 10, lines[:20]
    finally:
        stop_engine(engine)


def test_connection_flood_does_not_block_authenticated_client(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * MOST_UNPROVEN):
            stack.enter_context(connect(engine))
            if _ % 50 == 0:
                assert engine.call(lambda c: c.info()).pid == engine.process.pid


def connect(engine: Engine) -> socket.socket:
    return socket.create_connection(("127.0.0.1", engine.port), timeout=10)


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
