"""Masking: each kind by examples and counterexamples, stable placeholders, valid JSON."""

import json
import time
from pathlib import Path

import pytest

from engine.integrations.importers.masking import Masker
from engine.protocol.events.run import LogWritten
from tests.engine.integrations.importers.conftest import import_source
from tests.engine.integrations.importers.traces.files import write_lines

FOUND = {
    "write to Ann.Lee+x@mail.example.co.uk.": "write to <EMAIL_1>.",
    "call +49 30 1234567, please": "call <PHONE_1>, please",
    "call +1 (555) 123-4567": "call <PHONE_1>",
    "call (555) 123-4567": "call <PHONE_1>",
    "call 030 12345678 or 06 12 34 56 78": "call <PHONE_1> or <PHONE_2>",
    "card 4111 1111 1111 1111!": "card <CARD_1>!",
    "IBAN DE89 3704 0044 0532 0130 00 THANKS": "IBAN <IBAN_1> THANKS",
    "AT611904300234573201": "<IBAN_1>",
    "from 192.168.7.12 and 2001:db8:0:1::17.": "from <IP_1> and <IP_2>.",
    "sk-proj-abcdefghij0123456789": "<KEY_1>",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "<KEY_1>",
    "AKIAIOSFODNN7EXAMPLE": "<KEY_1>",
    "Authorization: Bearer abcdef0123456789": "Authorization: Bearer <KEY_1>",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "<KEY_1>",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest": "<KEY_1>\nrest",
}
KEPT = [
    "on 2026-05-29 at 12:30:45, version 1.2.3",
    "card 4111 1111 1111 1112",
    "IBAN AT621904300234573201",
    "127.0.0.1 and 999.1.1.1 and std::vector and a[::2]",
    "span 1700000000000000000, 12345678 rows, 3.14159265",
    "@mention and a@b",
    "05/12/2024 13:00",
]


@pytest.mark.parametrize("text", FOUND)
def test_personal_data_becomes_placeholders(text: str) -> None:
    assert Masker().text(text) == FOUND[text]


@pytest.mark.parametrize("text", KEPT)
def test_other_text_stays(text: str) -> None:
    masker = Masker()
    assert masker.text(text) == text
    assert masker.notes() == ("Masked: nothing was found.",)


def test_equal_values_share_a_placeholder() -> None:
    masker = Masker()
    assert masker.text("a@x.org b@x.org A@X.org") == "<EMAIL_1> <EMAIL_2> <EMAIL_1>"
    assert masker.text("4111-1111-1111-1111 4111111111111111") == "<CARD_1> <CARD_1>"
    assert masker.notes() == ("Masked: e-mail addresses 2, card numbers 1.",)


def test_json_stays_json() -> None:
    data = {"text": "\nann@x.org", "card": 4111111111111111, "n": 12, "list": ["é"]}
    text = Masker().text(json.dumps(data))
    assert json.loads(text) == {**data, "text": "\n<EMAIL_1>", "card": "<CARD_1>"}
    unchanged = '{"b" : 1.50}'
    assert Masker().text(unchanged) == unchanged


@pytest.mark.parametrize("part", ["a", "a.", "eyJ-", "1:", "1 ", "0", "AA00", "sk-", "a@a", "-"])
def test_long_text_takes_no_quadratic_time(part: str) -> None:
    started = time.monotonic()
    Masker().text(part * (400_000 // len(part)))
    assert time.monotonic() - started < 20


def test_import_masks_messages_arguments_and_title(project: Path, tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "mail", "arguments": '{"to": "ann@x.org"}'}}
    messages = [
        {"role": "user", "content": "Write to ann@x.org"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sent from 10.1.2.3"},
        {"role": "assistant", "content": "Done, ann@x.org"},
    ]
    file = write_lines(tmp_path / "a.jsonl", {"messages": messages})
    reader = import_source(project, file, mask=True)
    (one,) = reader.stored("train", 1)
    assert one.title == "Write to <EMAIL_1>"
    assert one.messages[1].tool_calls[0]["function"]["arguments"] == '{"to": "<EMAIL_1>"}'
    contents = [message.content for message in one.messages]
    assert contents == ["Write to <EMAIL_1>", "", "sent from <IP_1>", "Done, <EMAIL_1>"]
    logs = [e.text for e in reader.events_of("log.written") if isinstance(e, LogWritten)]
    assert logs == ["Masked: e-mail addresses 1, IP addresses 1."]
    reader.close()
    for stored in (project / "runs").rglob("*"):
        assert not stored.is_file() or b"ann@x.org" not in stored.read_bytes()
