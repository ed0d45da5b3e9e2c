"""notes.json of a run: written, read again, bounded, and never a reason to lose the run."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.protocol.records.run_notes import MOST_TAGS, RunNotes
from engine.storage.run_folder.notes import FILE, read_notes, write_notes


def test_notes_are_read_as_written(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == RunNotes()
    notes = RunNotes(tags=("long context", "β"), note="lr was too high", pinned=True)
    write_notes(tmp_path, notes)
    assert read_notes(tmp_path) == notes


def test_tags_are_unique_short_and_few() -> None:
    assert RunNotes(tags=(" a ", "b", "a")).tags == ("a", "b")
    for tags in (("",), ("x" * 33,), tuple(f"t{n}" for n in range(MOST_TAGS + 1))):
        with pytest.raises(ValidationError):
            RunNotes(tags=tags)


@pytest.mark.parametrize("content", [b"", b"{", b'{"tags": 3}', b"[" * 200_000, b"\xff"])
def test_unreadable_notes_say_why(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert read_notes(tmp_path).note.startswith("notes.json cannot be read: ")


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"note": "secret"}')
    (tmp_path / FILE).symlink_to(tmp_path / "secret")
    assert "secret" not in read_notes(tmp_path).note
    (tmp_path / FILE).unlink()
    os.mkfifo(tmp_path / FILE)
    assert "not a regular file" in read_notes(tmp_path).note
