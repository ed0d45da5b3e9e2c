"""Untrusted text on a terminal: control characters are escaped."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.terminal import OBEYED, complain, say, say_json, table, visible, warn
from engine.protocol.problems import Problem

CLI = Path(__file__).parents[3] / "engine" / "cli"
ATTACKS = (
    "\x1b]0;owned\x07",
    "\x1b]52;c;ZWNobyBvd25lZA==\x07",
    "\x1b[2J\x1b[1;1H",
    "\x9b2J",
    "\x90+q\x9c",
    "\rrunning",
    "a\b\b\b",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\x7f",
    "\x00",
    "\ud800",
)


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_control_characters_are_shown_as_escapes(
    attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(f"a{attack}b")
    warn(attack)
    problem = Problem(code="x", message=attack, hint=attack, where=attack)
    complain(problem)
    say(table(["name"], [[attack]]))
    output = capsys.readouterr()
    assert not OBEYED.search(output.out + output.err)
    assert "\\x" in output.out or "\\u" in output.out
    if attack.isascii() or "\ud800" not in attack:
        say_json(problem)
        complain(problem, as_json=True)
        lines = capsys.readouterr().out.splitlines()
        assert not OBEYED.search("".join(lines))
        assert json.loads(lines[0])["message"] == attack
        assert json.loads(lines[1])["problem"]["message"] == attack


def test_table_cell_stays_on_one_line() -> None:
    rendered = table(["name", "state"], [["a\nfake  running", "failed"], ["b", "c\td"]])
    assert rendered.splitlines() == [
        "name              state",
        "a\\nfake  running  failed",
        "b                 c\\td",
    ]


def test_ordinary_text_is_unchanged() -> None:
    text = "Ärger · 日本語 – ✓ 👩‍💻\n\tindented −1.0"
    assert visible(text) == text


@given(st.text())
def test_visible_leaves_no_control_characters(text: str) -> None:
    assert not OBEYED.search(visible(text))
    assert "\n" not in visible(text, lines=False)


def test_cli_writes_to_terminals_only_in_known_modules() -> None:
    """Only `terminal` writes to it; handshakes are lines for programs."""
    files = {
        file.name
        for file in CLI.rglob("*.py")
        if re.search(r"sys\.std(out|err)\.write|\bprint\(", file.read_text())
    }
    assert files == {"terminal.py", "attach.py", "serve.py"}
