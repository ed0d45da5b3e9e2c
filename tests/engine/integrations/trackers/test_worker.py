"""Tracker process: responses when the service rejects a key or items."""

from typing import Any

import pytest

from engine.integrations.trackers.sinks.errors import Lost, refused
from engine.integrations.trackers.worker import RequestHandler

SECRET = "sk-0123456789"


class EchoTracker:
    """Tracker that rejects every key and echoes it."""

    url = ""

    def __init__(self, message: str) -> None:
        self._message = message

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> None:
        raise refused("it answers 401", self._message)

    def send(self, items: list[dict[str, Any]]) -> Lost:
        return Lost(2, self._message)

    def close(self, state: str) -> None: ...


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (f"authorization=Bearer%20{SECRET}", f"no such key: {SECRET}"),
        (f"authorization=Bearer%20{SECRET}", f"no such header: Bearer {SECRET}"),
        (f"authorization=Bearer%20{SECRET}", f"no such header: Bearer%20{SECRET}"),
        ("x-key=sk-01234%2F56789", "no such key: sk-01234/56789"),
        (f"x-team=blue,authorization=Basic%20me%3A{SECRET}", f"wrong password: {SECRET}"),
        (f"pk-lf-12345:{SECRET}", "no such key: Basic cGstbGYtMTIzNDU6c2stMDEyMzQ1Njc4OQ=="),
        (SECRET, f"no such key: {SECRET}"),
    ],
)
def test_echoed_key_is_redacted_in_errors(
    key: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    opening = {"op": "open", "settings": {}, "key": key, "run": {}}
    answer = RequestHandler(EchoTracker(message)).answer(opening)
    output = answer["error"]["detail"] + capfd.readouterr().err
    assert "no such" in output or "wrong" in output
    for secret in (SECRET, "sk-01234/56789", "cGstbGYt"):
        assert secret not in output


def test_echoed_key_is_redacted_in_rejections() -> None:
    handler = RequestHandler(EchoTracker(f"rejects 2 of 9 spans: not for {SECRET}."))
    handler.answer({"op": "open", "settings": {}, "key": f"k=Bearer%20{SECRET}", "run": {}})
    answer = handler.answer({"op": "send", "items": []})["ok"]
    assert (answer["refused"], answer["words"]) == (2, "rejects 2 of 9 spans: not for ….")
