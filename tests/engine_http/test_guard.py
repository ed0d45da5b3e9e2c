"""Authentication: any route and method with any wrong header is rejected, also future routes."""

import http.client
import itertools
import os
import re
import socket
from pathlib import Path

import psutil
import pytest

from engine.launcher.local import discovery_file, find
from engine.server.app import ROUTES
from tests.engine_http.conftest import Engine

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
PATHS = (
    "/", "/engine", "/engine/shutdown", "/keys", "/doctor", "/models", "/samples", "/projects",
    "/confirmations", "/project", "/scenarios", "/import", "/import/scenarios", "/forecast",
    "/demonstrations",
    "/runs/x/demonstrations", "/runs", "/runs/x", "/runs/x/command",
    "/evaluations", "/runs/x/evaluation", "/runs/x/inspect", "/runs/x/inspect/0",
    "/runs/x/events", "/runs/x/changes", "/runs/x/ticks",
    "/runs/x/trajectories", "/runs/x/scenarios", "/runs/x/agreement", "/runs/x/calls/y",
    "/runs/x/exported_trajectories", "/runs/x/filter_names",
    "/runs/x/labels", "/runs/x/judge", "/runs/x/judge/price", "/runs/x/judge/suggest",
    "/runs/x/disagreements", "/runs/x/review_queue", "/runs/x/annotators",
    "/rubric", "/judges", "/runs/x/labels/preview",
    "/arena", "/runs/x/checkpoints", "/runs/x/checkpoints/1", "/runs/x/checkpoints/1/pin",
    "/runs/x/labels/undo", "/runs/x/labels/redo", "/v1/chat/completions", "/v1/models",
    "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/runs/x/checkpoints/1/export", "/environments", "/environments/x", "/project/packages",
    "/drafts", "/drafts/tools", "/drafts/environment", "/project/servers", "/engine/use",
    "/backends", "/docs", "/nope",
    "/hosts", "/hosts/known", "/hosts/x", "/hosts/x/answer", "/lease", "/home-requests",
    "/home-requests/x", "/sync/missing", "/sync/commit", "/sync/contents/x", "/runs/x/files",
    "/runs/x/file",
    "/outside", "/runs/x/outside/train", "/runs/x/outside/log", "/runs/x/outside/close",
    "/runs/x/hand_over", "/runs/x/bring_home", "/runs/x/send", "/runs/x/checkpoints/1/fetch",
    "/runs/x/trackers", "/runs/x/track", "/runs/x/repair", "/project/files",
    "/models/here", "/models/search", "/models/facts", "/models/checks", "/models/downloads",
    "/models/delete",
    "/clusters", "/clusters/check", "/clusters/x", "/clusters/x/check", "/clusters/x/key",
    "/clusters/commands", "/clusters/x/start", "/clusters/x/stop", "/skyrl", "/skyrl/discard",
    "/judges/check", "/sweeps", "/sweeps/plan", "/sweeps/x", "/sweeps/x/events",
)  # fmt: skip


def request_status(
    engine: Engine, method: str, path: str, headers: dict[str, str]
) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in headers.items():
            for single in value.split("|"):
                connection.putheader(name, single)
        connection.endheaders()
        response = connection.getresponse()
        response.read()
        return response.status, {k.lower(): v for k, v in response.getheaders()}
    finally:
        connection.close()


def test_only_the_token_is_accepted_on_every_route(engine: Engine) -> None:
    host = f"127.0.0.1:{engine.port}"
    wrong = (None, "Bearer ", "Bearer wrong", f"Basic {engine.token}", engine.token)
    for method, path, value in itertools.product(METHODS, PATHS, wrong):
        headers = {"Host": host} | ({"Authorization": value} if value is not None else {})
        assert request_status(engine, method, path, headers)[0] == 401, (method, path, value)
    good = {"Host": host, "Authorization": f"Bearer {engine.token}"}
    assert request_status(engine, "GET", "/engine", good)[0] == 200
    # the engine's token is not a rollout key
    assert request_status(engine, "GET", "/v1/models", good)[0] == 401


@pytest.mark.parametrize("path", ["/engine", "/runs", "/v1/messages", "/v1/models"])
def test_header_of_anthropic_clients_takes_rollout_keys_only(engine: Engine, path: str) -> None:
    host = {"Host": f"127.0.0.1:{engine.port}"}
    for value in (engine.token, "wrong", f"{engine.token}|{engine.token}"):
        assert request_status(engine, "GET", path, {**host, "x-api-key": value})[0] == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1:{port}.", "a:{port}", "{ok}|{ok}"],
)
def test_host_header_must_match_exactly(engine: Engine, host: str) -> None:
    ok = f"127.0.0.1:{engine.port}"
    headers = {
        "Host": host.format(port=engine.port, ok=ok),
        "Authorization": f"Bearer {engine.token}",
    }
    assert request_status(engine, "GET", "/engine", headers)[0] in (400, 421)


@pytest.mark.parametrize("origin", ["null", "http://localhost", "https://evil.example"])
def test_browser_requests_are_rejected(engine: Engine, origin: str) -> None:
    base = {"Host": f"127.0.0.1:{engine.port}", "Authorization": f"Bearer {engine.token}"}
    for method in METHODS:
        status, headers = request_status(engine, method, "/engine", {**base, "Origin": origin})
        assert status == 403
        assert not [name for name in headers if name.startswith("access-control")]
    status, _ = request_status(engine, "GET", "/engine", {**base, "Sec-Fetch-Site": "cross-site"})
    assert status == 403


def test_path_matrix_contains_every_static_route() -> None:
    """New routes must be added to PATHS too."""
    files = [Path(one.__module__.replace(".", "/")).with_suffix(".py") for one in ROUTES]
    source = "".join(file.read_text() for file in files)
    routes = set(re.findall(r'\("(?:GET|POST|PUT|DELETE)", "(/[^"]*)"', source))
    paths = set(PATHS)
    assert {r for r in routes if "{" not in r} <= paths


def test_engine_listens_on_loopback_only(engine: Engine) -> None:
    process = psutil.Process(engine.process.pid)
    ours = [process, *process.children(recursive=True)]
    if os.geteuid() != 0:  # the engine hides from other processes of its user
        ours = []
    listening = [
        c.laddr.ip
        for p in ours
        for c in p.net_connections(kind="inet")
        if c.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"][: len(ours)]
    everywhere = psutil.net_connections(kind="inet")
    on_port = [c for c in everywhere if c.laddr.port == engine.port]
    assert {c.laddr.ip for c in on_port if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_discovery_file_is_private_and_token_not_in_cmdline(engine: Engine) -> None:
    record = discovery_file(engine.workspace)
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700
    assert engine.token not in " ".join(psutil.Process(engine.process.pid).cmdline())


def test_stale_discovery_file_does_not_leak_token(tmp_path: Path, workspace: Path) -> None:
    """Another process answers on the port of a stale discovery file: no secret is sent to it."""
    import asyncio
    import json
    import threading

    received: list[bytes] = []
    squatter = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = squatter.accept()
        with connection:
            received.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    thread = threading.Thread(target=answer)
    thread.start()
    record = {
        "port": squatter.getsockname()[1], "token": "secret-token", "pid": 1,
        "workspace": str(workspace), "api": [1, 0],
    }  # fmt: skip
    discovery_file(workspace).write_text(json.dumps(record))
    assert asyncio.run(find(workspace)) is None
    thread.join()
    squatter.close()
    assert b"secret-token" not in b"".join(received)
    assert b"authorization" not in b"".join(received).lower()
