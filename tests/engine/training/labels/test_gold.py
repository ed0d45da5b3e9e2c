"""Gold trajectories as warm-up data, for as long as they are pinned."""

from pathlib import Path

from engine.protocol.config.project import WarmupConfig
from engine.training.labels.gold import FILE, replace_lines
from engine.training.sft.loop import demonstration_files


def test_gold_file_is_added_to_demonstrations_once(tmp_path: Path) -> None:
    own = WarmupConfig(file="own.jsonl")
    assert demonstration_files(tmp_path, own) == [tmp_path / "own.jsonl"]
    (tmp_path / FILE).write_text("{}\n")
    assert demonstration_files(tmp_path, own) == [tmp_path / "own.jsonl", tmp_path / FILE]
    assert demonstration_files(tmp_path, WarmupConfig(file=FILE)) == [tmp_path / FILE]
    without_gold = WarmupConfig(file="own.jsonl", gold=False)
    assert demonstration_files(tmp_path, without_gold) == [tmp_path / "own.jsonl"]


def test_unicode_separators_in_strings_do_not_split_lines(tmp_path: Path) -> None:
    """JSON Lines end at line feeds; Unicode's own separators may occur inside a string."""
    file = tmp_path / FILE
    other_line = '{"messages": [{"role": "user", "content": "one\u2028two\u0085three"}]}'
    file.write_text(f"{other_line}\n", encoding="utf-8")
    replace_lines(file, "run:", ['{"id": "run:1"}'])
    replace_lines(file, "run:", ['{"id": "run:2"}'])
    assert file.read_text(encoding="utf-8") == f'{other_line}\n{{"id": "run:2"}}\n'
