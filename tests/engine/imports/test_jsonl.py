"""Attempts from elsewhere: what is read, and what is refused with its line."""

import json
from pathlib import Path

import pytest

from engine.imports.jsonl import read_attempts
from engine.protocol.problems import ConfigError

ASKED = {"role": "user", "content": "What is it worth?"}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_attempts_that_begin_alike_are_siblings(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    other = {"role": "user", "content": [{"type": "text", "text": "Another"}]}
    lines = [[ASKED, said("1")], {"messages": [other, said("x")], "reward": 1}, [ASKED, said("2")]]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    first, second = read_attempts(file)
    assert [one.messages[-1].content for one in first] == ["1", "2"]
    assert [(one.group, one.index) for one in (*first, *second)] == [(0, 0), (0, 1), (1, 0)]
    assert (second[0].reward, second[0].title) == (1, "Another")
    assert first[0].awaits_judge


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "3",
        '{"messages": ["no"]}',
        '{"messages": [[]]}',
        '{"nothing": []}',
        '{"messages": [], "reward": NaN}',
        '{"messages": [], "reward": "high"}',
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps([ASKED]) + "\n" + line)
    with pytest.raises(ConfigError) as caught:
        read_attempts(file)
    assert caught.value.problem.where == f"{file}:2"
    assert caught.value.problem.hint


def test_half_a_character_is_replaced(tmp_path: Path) -> None:
    """A model that is cut off can leave half a surrogate pair; a separator of lines is no line."""
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"messages": [{"role": "user", "content": "\\ud83d\\ude00 \\ud83d \u2028."}]}\n'
    )
    ((one,),) = read_attempts(file)
    assert one.messages[0].content == "\U0001f600 \ufffd \u2028."


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="no attempts"):
        read_attempts(file)
