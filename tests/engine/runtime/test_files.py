"""Atomic file writes: content, permissions, and no leftover files."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.runtime.files import PRIVATE_MODE, replace_file


def test_replace_file_leaves_no_other_files(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for text in ("first\n", "second · ü\n"):
        replace_file(file, text)
        assert file.read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == [file.name]


def test_threads_may_replace_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    contents = [str(number) * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(lambda content: replace_file(file, content), contents))
            assert file.read_text() in contents
    assert os.listdir(tmp_path) == [file.name]


def test_private_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    public, private = tmp_path / "public", tmp_path / "private"
    before = os.umask(0o022)
    try:
        replace_file(public, "x")
        replace_file(private, "x", PRIVATE_MODE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_failed_write_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    replace_file(file, "old")

    def raise_disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(OSError, match="No space"):
        replace_file(file, "new")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == [file.name]
