"""Keys and the addresses they go to, with the real judge process and real servers on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engine.protocol.problems import ConfigError
from engine.trust.addresses import confirm_address
from tests.engine.judge.conftest import Court, worth

KEY = "sk-secret-123"


class Elsewhere(BaseHTTPRequestHandler):
    """Records what arrives, or sends it on to `target`."""

    target = ""
    arrived: list[dict[str, str]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.arrived.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(307 if self.target else 200)
        if self.target:
            self.send_header("location", self.target)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *arguments: Any) -> None: ...


@contextmanager
def server(target: str = "") -> Iterator[tuple[str, list[dict[str, str]]]]:
    """(address, headers of what arrived)."""
    arrived: list[dict[str, str]] = []
    handler = type("Handler", (Elsewhere,), {"target": target, "arrived": arrived})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", arrived
        http.shutdown()
        thread.join()


def test_a_loopback_address_is_asked_without_the_provider_key(court: Court) -> None:
    court.run(lambda ruler, run: ruler.judge(worth(0.2, 0.8)))
    seen = {headers["authorization"] for headers in court.script.headers}
    print(f"sent to loopback: {seen}")
    assert seen == {"Bearer none"}


def test_a_confirmed_address_gets_the_key(court: Court) -> None:
    confirm_address("openai", court.script.url)
    court.run(lambda ruler, run: ruler.judge(worth(0.2, 0.8)))
    assert {h["authorization"] for h in court.script.headers} == {f"Bearer {KEY}"}


def test_the_key_of_one_provider_is_not_confirmed_for_another(court: Court) -> None:
    confirm_address("anthropic", court.script.url)
    court.run(lambda ruler, run: ruler.judge(worth(0.2, 0.8)))
    assert {h["authorization"] for h in court.script.headers} == {"Bearer none"}


def test_another_address_is_asked_nothing(court: Court) -> None:
    with pytest.raises(ConfigError) as refused:
        court.run(
            lambda ruler, run: ruler.judge(worth(0.2, 0.8)), base_url="https://evil.example/v1"
        )
    assert refused.value.problem.code == "address.unconfirmed"
    assert "evil.example" in refused.value.problem.message


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_redirect_is_not_followed(court: Court, provider: str) -> None:
    """A confirmed server sends the question on: neither key nor text goes there."""
    with server() as (thief, stolen), server(f"{thief}/v1/messages") as (first, arrived):
        confirm_address(provider, first)
        own = {"models": (f"{provider}/scripted",), "base_url": first, "retries": 0}
        court.run(lambda ruler, run: ruler.judge(worth(0.2, 0.8)), **own)
    print(f"{provider}: {len(arrived)} at the confirmed server, {len(stolen)} behind its redirect")
    assert arrived
    assert stolen == []
