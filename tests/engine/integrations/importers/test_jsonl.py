"""Import of JSON lines: accepted forms, and errors with their line."""

import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from engine.integrations.importers.jsonl import MOST_LINE_BYTES, read_attempts, read_lines
from engine.integrations.importers.storage import open_source
from engine.protocol.problems import ConfigError

PROMPT = {"role": "user", "content": "What is it worth?"}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_trajectories_with_the_same_prompt_form_a_group(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    other = {"role": "user", "content": [{"type": "text", "text": "Another"}]}
    lines = [
        [PROMPT, reply("1")],
        {"messages": [other, reply("x")], "reward": 1},
        [PROMPT, reply("2")],
    ]
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
def test_invalid_line_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps([PROMPT]) + "\n" + line)
    with pytest.raises(ConfigError) as error:
        read_attempts(file)
    assert error.value.problem.where == f"{file}:2"
    assert error.value.problem.hint


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    """A truncated model can leave half a surrogate pair; U+2028 does not end a line."""
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"messages": [{"role": "user", "content": "\\ud83d\\ude00 \\ud83d \u2028."}]}\n'
    )
    ((one,),) = read_attempts(file)
    assert one.messages[0].content == "\U0001f600 \ufffd \u2028."


def test_empty_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="no trajectories"):
        read_attempts(file)


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "bom.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps([PROMPT, reply("1")]).encode() + b"\r\n")
    assert len(read_attempts(file)[0]) == 1


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_non_regular_file_is_rejected_at_once(tmp_path: Path, kind: str) -> None:
    file = {"device": Path("/dev/zero")}.get(kind, tmp_path / "x.jsonl")
    if kind == "pipe":
        os.mkfifo(file)
    if kind == "folder":
        file.mkdir()
    start = time.monotonic()
    with pytest.raises(ConfigError, match=r"regular file|Is a directory"):
        read_attempts(file)
    if kind != "folder":
        for name in (file, tmp_path / "x.parquet"):
            if name != file:
                os.mkfifo(name)
            with pytest.raises(ConfigError, match="regular file"):
                open_source(name)
    seconds = time.monotonic() - start
    print(f"refused in {seconds:.3f} s")
    assert seconds < 5


def test_lines_are_limited_and_read_one_by_one(tmp_path: Path) -> None:
    """Memory use is that of a line, not of the file."""
    file = tmp_path / "long.jsonl"
    line = json.dumps([PROMPT, reply("x" * 2**20)]).encode() + b"\n"
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


def test_non_utf8_line_is_reported_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(json.dumps([PROMPT, reply("1")]).encode() + b"\n\xe9\n")
    with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
        read_attempts(file)


def test_too_large_metric_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    file.write_text('{"messages": [], "metrics": {"a": 1' + "0" * 400 + "}}")
    with pytest.raises(ConfigError, match="not a trajectory"):
        read_attempts(file)
