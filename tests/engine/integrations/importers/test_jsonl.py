"""Attempts from elsewhere: what is read, and what is refused with its line."""

import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from engine.integrations.importers.jsonl import MOST_LINE_BYTES, read_attempts, read_lines
from engine.integrations.importers.storage import open_source
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
    with pytest.raises(ConfigError, match="no trajectories"):
        read_attempts(file)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "bom.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps([ASKED, said("1")]).encode() + b"\r\n")
    assert len(read_attempts(file)[0]) == 1


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    file = {"device": Path("/dev/zero")}.get(kind, tmp_path / "x.jsonl")
    if kind == "pipe":
        os.mkfifo(file)
    if kind == "folder":
        file.mkdir()
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=r"regular file|Is a directory"):
        read_attempts(file)
    if kind != "folder":
        for name in (file, tmp_path / "x.parquet"):
            if name != file:
                os.mkfifo(name)
            with pytest.raises(ConfigError, match="regular file"):
                open_source(name)
    seconds = time.monotonic() - begun
    print(f"refused in {seconds:.3f} s")
    assert seconds < 5


def test_a_line_has_a_limit_and_is_read_alone(tmp_path: Path) -> None:
    """The memory is that of a line, not of the file."""
    file = tmp_path / "long.jsonl"
    line = json.dumps([ASKED, said("x" * 2**20)]).encode() + b"\n"
    file.write_bytes(line * 100)
    tracemalloc.start()
    lines = read_lines(file)
    assert sum(1 for _ in lines) == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{file.stat().st_size / 2**20:.0f} MB read with {peak / 2**20:.1f} MB")
    assert peak < 10 * 2**20
    file.write_bytes(b"[" + b" " * (MOST_LINE_BYTES + 10))
    with pytest.raises(ConfigError, match="line 1 is longer than 16 MB"):
        read_attempts(file)


def test_text_that_is_no_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(json.dumps([ASKED, said("1")]).encode() + b"\n\xe9\n")
    with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
        read_attempts(file)


def test_a_number_too_large_for_a_metric_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    file.write_text('{"messages": [], "metrics": {"a": 1' + "0" * 400 + "}}")
    with pytest.raises(ConfigError, match="not a trajectory"):
        read_attempts(file)
