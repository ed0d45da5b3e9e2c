"""Masking of personal data and keys in imported conversations, by patterns and check digits.

Names and addresses of people need a language model and stay. Formats: Luhn (ISO/IEC 7812) for card
numbers, modulo 97 (ISO 13616) for IBANs, E.164 for the length of telephone numbers.
"""

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from engine.integrations.importers.chat_messages import Source, TrajectoryBatch
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import Trajectory
from engine.runtime.text import replace_surrogates

PLACEHOLDER = re.compile(r"<(KEY|EMAIL|IBAN|CARD|IP|PHONE)_\d+>")
NAMES = {
    "KEY": "keys and tokens",
    "EMAIL": "e-mail addresses",
    "IBAN": "IBANs",
    "CARD": "card numbers",
    "IP": "IP addresses",
    "PHONE": "telephone numbers",
}
KEYS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:"
    r"sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
    r"|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r")|(?i:(?<=\bBearer ))(?!<)[\w.~+/=-]{12,}",
    re.DOTALL,
)
EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[A-Za-z0-9](?:[\w-]*\.)+[A-Za-z]{2,}\b")
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
CARD = re.compile(r"(?<![\w.+-])[2-6]\d(?:[ -]?\d){11,17}(?![\w-])")
IP = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)"
    r"|(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])"
)
PHONE = re.compile(
    r"(?<![\w.+-])(?:"
    r"(?:\+|00)[1-9]\d{0,3}[ ./-]?(?:\(\d{1,4}\)[ ./-]?)?\d(?:[ ./-]?\d){5,12}"  # +49 30 1234567
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4}"  # (555) 123-4567
    r"|0\d(?:[ .-]\d{2}){4}"  # 06 12 34 56 78
    r"|0\d{2,4}[ /-]{1,3}\d{3,4}[ -]?\d{3,5}"  # 030 1234567
    r")(?![\w-])"
)
SHORTEST_IBAN, LONGEST_IBAN = 15, 34
LEAST_DIGITS, MOST_DIGITS = 8, 15
"""Digits of a telephone number."""


class Kind(NamedTuple):
    """Kind of personal data: its pattern, and how much of a match is one (a text; empty: none)."""

    name: str
    pattern: re.Pattern[str]
    accept: Callable[[str], str]


class Masker:
    """Replacement of personal data in the conversations of one import. Equal values get the same
    placeholder, such as `<EMAIL_1>`."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """Masked text. JSON is masked value by value, so that it stays valid."""
        if text.lstrip()[:1] in ("{", "["):
            try:
                data = json.loads(text)
            except (ValueError, RecursionError):
                return self._plain(text)
            masked = self.value(data)
            return text if masked == data else json.dumps(masked, ensure_ascii=False)
        return self._plain(text)

    def value(self, value: Any) -> Any:
        """Masked copy of a JSON value; names of objects stay. A number that is a card number
        becomes text."""
        if isinstance(value, str):
            return self.text(replace_surrogates(value))
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {key: self.value(one) for key, one in value.items()}
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
            masked = self._plain(str(value))
            return value if masked == str(value) else masked
        return value

    def trajectory(self, one: Trajectory) -> Trajectory:
        """Masked copy of a trajectory: messages, tools, title, scenario and printed output."""
        texts = {name: self.text(getattr(one, name)) for name in ("title", "output", "scenario_id")}
        messages = [self._message(message) for message in one.messages]
        change = {**texts, "messages": messages, "tools": self.value(one.tools)}
        return one.model_copy(update=change)

    def notes(self) -> tuple[str, ...]:
        """Sentence with the number of different values of each kind."""
        parts = [f"{name} {self._counts[kind]}" for kind, name in NAMES.items()]
        kept = [part for part, kind in zip(parts, NAMES, strict=True) if self._counts[kind]]
        return (f"Masked: {', '.join(kept) or 'nothing was found'}.",)

    def _message(self, message: Message) -> Message:
        change = {
            "content": self.text(message.content),
            "reasoning": self.text(message.reasoning),
            "tool_calls": self.value(message.tool_calls),
        }
        if message.name:
            change["name"] = self.text(message.name)
        return message.model_copy(update=change)

    def _plain(self, text: str) -> str:
        for kind in KINDS:
            text = kind.pattern.sub(partial(self._replaced, kind), text)
        return text

    def _replaced(self, kind: Kind, found: re.Match[str]) -> str:
        text = found[0]
        accepted = kind.accept(text)
        if not accepted:
            return text
        key = accepted if kind.name == "KEY" else re.sub(r"[ ()./-]", "", accepted).lower()
        if kind.name in ("EMAIL", "IP"):
            key = accepted.lower()
        place = (kind.name, key)
        if place not in self._placeholders:
            self._counts[kind.name] += 1
            self._placeholders[place] = f"<{kind.name}_{self._counts[kind.name]}>"
        return self._placeholders[place] + text[len(accepted) :]


def masked(source: Source, masker: Masker) -> Source:
    """Source of the same trajectories, masked; its last note counts what was masked."""

    def lots() -> Iterator[TrajectoryBatch]:
        batches = source.lots()
        try:
            for batch in batches:
                groups = [[masker.trajectory(one) for one in group] for group in batch.groups]
                yield batch._replace(groups=groups)
        finally:
            batches.close()  # type: ignore[attr-defined]

    return source._replace(lots=lots, last_notes=masker.notes)


def _iban(text: str) -> str:
    """Longest beginning, up to a space, whose check digits are right."""
    while text:
        plain = text.replace(" ", "")
        digits = "".join(str(int(c, 36)) for c in plain[4:] + plain[:4])
        if SHORTEST_IBAN <= len(plain) <= LONGEST_IBAN and int(digits) % 97 == 1:
            return text
        text = text.rpartition(" ")[0]
    return ""


def _card(text: str) -> str:
    digits = [int(c) for c in text if c.isdecimal()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return text if (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 else ""


def _address(text: str) -> str:
    """Address of a network interface; loopback and unspecified ones say nothing about a person."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    short = ":" in text and len([part for part in text.split(":") if part]) < 3
    return "" if short or address.is_loopback or address.is_unspecified else text


def _phone(text: str) -> str:
    digits = sum(c.isdecimal() for c in text) - 2 * text.startswith("00")
    return text if LEAST_DIGITS <= digits <= MOST_DIGITS else ""


KINDS = (
    Kind("KEY", KEYS, str),
    Kind("EMAIL", EMAIL, str),
    Kind("IBAN", IBAN, _iban),
    Kind("CARD", CARD, _card),
    Kind("IP", IP, _address),
    Kind("PHONE", PHONE, _phone),
)
"""Kinds in the order in which they are replaced: the more certain ones first."""
