"""Pinned attempts become warm-up data, and only as long as they are pinned."""

from pathlib import Path

from engine.gold import FILE
from engine.protocol.config import WarmupConfig
from engine.supervised.epochs import demonstration_files


def test_gold_joins_the_demonstrations_once(tmp_path: Path) -> None:
    own = WarmupConfig(file="own.jsonl")
    assert demonstration_files(tmp_path, own) == [tmp_path / "own.jsonl"]
    (tmp_path / FILE).write_text("{}\n")
    assert demonstration_files(tmp_path, own) == [tmp_path / "own.jsonl", tmp_path / FILE]
    assert demonstration_files(tmp_path, WarmupConfig(file=FILE)) == [tmp_path / FILE]
    refused = WarmupConfig(file="own.jsonl", gold=False)
    assert demonstration_files(tmp_path, refused) == [tmp_path / "own.jsonl"]
