"""Provider keys and their addresses, with the real judge process and servers on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engine.protocol.problems import ConfigError
from engine.trust.addresses import confirm_address
from tests.engine.judge.conftest import JudgeHarness, graded_group

KEY = "sk-secret-123"


class RecordingHandler(BaseHTTPRequestHandler):
    """HTTP handler that records request headers, or redirects to `target`."""

    target = ""
    requests: list[dict[str, str]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.requests.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(307 if self.target else 200)
        if self.target:
            self.send_header("location", self.target)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *arguments: Any) -> None: ...


@contextmanager
def server(target: str = "") -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve on loopback; yields (address, headers of the requests received)."""
    requests: list[dict[str, str]] = []
    handler = type("Handler", (RecordingHandler,), {"target": target, "requests": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", requests
        http.shutdown()
        thread.join()


def test_loopback_address_does_not_receive_the_key(harness: JudgeHarness) -> None:
    harness.run(lambda ruler, run: ruler.judge(graded_group(0.2, 0.8)))
    authorizations = {headers["authorization"] for headers in harness.script.headers}
    print(f"sent to loopback: {authorizations}")
    assert authorizations == {"Bearer none"}


def test_confirmed_address_receives_the_key(harness: JudgeHarness) -> None:
    confirm_address("openai", harness.script.url)
    harness.run(lambda ruler, run: ruler.judge(graded_group(0.2, 0.8)))
    assert {h["authorization"] for h in harness.script.headers} == {f"Bearer {KEY}"}


def test_confirmation_for_one_provider_does_not_cover_another(harness: JudgeHarness) -> None:
    confirm_address("anthropic", harness.script.url)
    harness.run(lambda ruler, run: ruler.judge(graded_group(0.2, 0.8)))
    assert {h["authorization"] for h in harness.script.headers} == {"Bearer none"}


def test_unconfirmed_address_is_rejected(harness: JudgeHarness) -> None:
    with pytest.raises(ConfigError) as error:
        harness.run(
            lambda ruler, run: ruler.judge(graded_group(0.2, 0.8)),
            base_url="https://evil.example/v1",
        )
    assert error.value.problem.code == "address.unconfirmed"
    assert "evil.example" in error.value.problem.message


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_redirect_is_not_followed(harness: JudgeHarness, provider: str) -> None:
    """A confirmed server redirects: neither key nor prompt is sent to the target."""
    with (
        server() as (target_url, redirected),
        server(f"{target_url}/v1/messages") as (first, requests),
    ):
        confirm_address(provider, first)
        settings = {"models": (f"{provider}/scripted",), "base_url": first, "retries": 0}
        harness.run(lambda ruler, run: ruler.judge(graded_group(0.2, 0.8)), **settings)
    print(f"{provider}: {len(requests)} requests, {len(redirected)} behind the redirect")
    assert requests
    assert redirected == []
