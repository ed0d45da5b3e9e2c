"""The process of a tracker: what it answers when a service does not take what it is told."""

from typing import Any

import pytest

from engine.integrations.trackers.sinks.errors import Lost, refused
from engine.integrations.trackers.worker import RequestHandler

SECRET = "sk-0123456789"


class Echo:
    """A service that refuses every key, and says it back."""

    url = ""

    def __init__(self, said: str) -> None:
        self._said = said

    def open(self, settings: dict[str, Any], key: str, run: dict[str, Any]) -> None:
        raise refused("it answers 401", self._said)

    def send(self, items: list[dict[str, Any]]) -> Lost:
        return Lost(2, self._said)

    def close(self, state: str) -> None: ...


@pytest.mark.parametrize(
    ("key", "said"),
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
def test_a_key_that_a_service_echoes_is_told_to_nobody(
    key: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    opening = {"op": "open", "settings": {}, "key": key, "run": {}}
    answer = RequestHandler(Echo(said)).answer(opening)
    told = answer["error"]["detail"] + capfd.readouterr().err
    assert "no such" in told or "wrong" in told
    for secret in (SECRET, "sk-01234/56789", "cGstbGYt"):
        assert secret not in told


def test_neither_is_it_where_a_service_will_never_take_something() -> None:
    desk = RequestHandler(Echo(f"rejects 2 of 9 spans: not for {SECRET}."))
    desk.answer({"op": "open", "settings": {}, "key": f"k=Bearer%20{SECRET}", "run": {}})
    answer = desk.answer({"op": "send", "items": []})["ok"]
    assert (answer["refused"], answer["words"]) == (2, "rejects 2 of 9 spans: not for ….")
