"""Text from outside on a terminal: shown, never obeyed."""

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
def test_controls_are_shown_as_escapes(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"a{attack}b")
    warn(attack)
    problem = Problem(code="x", message=attack, hint=attack, where=attack)
    complain(problem)
    say(table(["name"], [[attack]]))
    told = capsys.readouterr()
    assert not OBEYED.search(told.out + told.err)
    assert "\\x" in told.out or "\\u" in told.out
    if attack.isascii() or "\ud800" not in attack:
        say_json(problem)
        complain(problem, as_json=True)
        lines = capsys.readouterr().out.splitlines()
        assert not OBEYED.search("".join(lines))
        assert json.loads(lines[0])["message"] == attack
        assert json.loads(lines[1])["problem"]["message"] == attack


def test_a_cell_is_one_line_of_its_width() -> None:
    shown = table(["name", "state"], [["a\nfake  running", "failed"], ["b", "c\td"]])
    assert shown.splitlines() == [
        "name              state",
        "a\\nfake  running  failed",
        "b                 c\\td",
    ]


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Ärger · 日本語 – ✓ 👩‍💻\n\tindented −1.0"
    assert visible(text) == text


@given(st.text())
def test_nothing_that_is_obeyed_is_left(text: str) -> None:
    assert not OBEYED.search(visible(text))
    assert "\n" not in visible(text, lines=False)


def test_the_command_line_writes_to_terminals_in_one_place() -> None:
    """`terminal` alone; handshakes are lines for programs, made by us."""
    found = {
        file.name
        for file in CLI.rglob("*.py")
        if re.search(r"sys\.std(out|err)\.write|\bprint\(", file.read_text())
    }
    assert found == {"terminal.py", "attach.py", "serve.py"}
