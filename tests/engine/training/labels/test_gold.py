"""Pinned attempts become warm-up data, and only as long as they are pinned."""

from pathlib import Path

from engine.protocol.config.project import WarmupConfig
from engine.training.labels.gold import FILE, replace_lines
from engine.training.sft.loop import demonstration_files


def test_gold_joins_the_demonstrations_once(tmp_path: Path) -> None:
    own = WarmupConfig(file="own.jsonl")
    assert demonstration_files(tmp_path, own) == [tmp_path / "own.jsonl"]
    (tmp_path / FILE).write_text("{}\n")
    assert demonstration_files(tmp_path, own) == [tmp_path / "own.jsonl", tmp_path / FILE]
    assert demonstration_files(tmp_path, WarmupConfig(file=FILE)) == [tmp_path / FILE]
    refused = WarmupConfig(file="own.jsonl", gold=False)
    assert demonstration_files(tmp_path, refused) == [tmp_path / "own.jsonl"]


def test_separators_inside_a_string_are_no_ends_of_lines(tmp_path: Path) -> None:
    """JSON Lines end at line feeds; Unicode's own separators may stand in what somebody said."""
    file = tmp_path / FILE
    theirs = '{"messages": [{"role": "user", "content": "one\u2028two\u0085three"}]}'
    file.write_text(f"{theirs}\n", encoding="utf-8")
    replace_lines(file, "run:", ['{"id": "run:1"}'])
    replace_lines(file, "run:", ['{"id": "run:2"}'])
    assert file.read_text(encoding="utf-8") == f'{theirs}\n{{"id": "run:2"}}\n'
