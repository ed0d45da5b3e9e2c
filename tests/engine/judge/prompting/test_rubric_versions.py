"""Versions of a rubric: every source that was ever saved, whole."""

import getpass
import json
import time
from pathlib import Path

import pytest

from engine.judge.prompting import rubric_versions
from engine.judge.prompting.rubric_versions import (
    read_versions,
    save_rubric,
    versions_file,
    view_rubric,
)
from engine.protocol.problems import ConfigError
from engine.protocol.records.judging import Criterion, RubricView, version_of

CRITERIA = """---
criteria:
  - name: right
    weight: 2
    words: It is right.
---
Be right.
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clock = iter(range(1000, 2000))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    return tmp_path / "rubric.md"


def history(file: Path) -> list[tuple[int, str, str, float]]:
    return [(one.number, one.source, one.who, one.at) for one in read_versions(file)]


def test_a_source_with_separators_of_its_own_stays_one_version(file: Path) -> None:
    for source in ("Be brief.\u2028Be right.\n", "Be brief.\u0085Be kind.\n"):
        save_rubric(file, source)
    assert [one.source for one in view_rubric(file).versions] == [
        "Be brief.\u2028Be right.\n",
        "Be brief.\u0085Be kind.\n",
    ]


def test_without_a_file_there_is_no_version(file: Path) -> None:
    assert view_rubric(file) == RubricView(source="", version=version_of(""))
    file.write_text(" \n")
    assert view_rubric(file).versions == []
    assert not versions_file(file).exists()


def test_saved_versions_are_numbered_and_signed(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    view = save_rubric(file, "Two.\n")
    assert file.read_text() == view.source == "Two.\n"
    assert view.version == version_of("Two.\n")
    assert history(file) == [
        (1, "One.\n", "Dana", 1000.0),
        (2, "Two.\n", getpass.getuser(), 1001.0),
    ]
    assert [one.version for one in view.versions] == [version_of("One.\n"), version_of("Two.\n")]
    assert view.versions == read_versions(file)


def test_the_same_source_is_not_stored_twice_in_a_row(file: Path) -> None:
    for source in ("One.\n", "One.\n", "Two.\n", "One.\n"):
        save_rubric(file, source, "Dana")
    assert [one.source for one in read_versions(file)] == ["One.\n", "Two.\n", "One.\n"]


def test_a_change_by_another_program_is_stored_when_it_is_seen(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    file.write_text("Other.\n")
    view = view_rubric(file)
    assert view.source == "Other.\n"
    assert [(one.source, one.who) for one in view.versions] == [
        ("One.\n", "Dana"),
        ("Other.\n", "outside"),
    ]
    assert view_rubric(file).versions == view.versions


def test_a_change_by_another_program_is_stored_before_it_is_replaced(file: Path) -> None:
    file.write_text("Other.\n")
    save_rubric(file, "Mine.\n", "Dana")
    assert [one.source for one in read_versions(file)] == ["Other.\n", "Mine.\n"]


def test_a_read_only_project_is_shown_as_it_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    file.write_text("Other.\n")
    monkeypatch.setattr(rubric_versions, "replace_file", refuse)
    view = view_rubric(file)
    assert (view.source, view.versions) == ("Other.\n", [])


def test_criteria_are_read(file: Path) -> None:
    view = save_rubric(file, CRITERIA)
    assert view.criteria == (Criterion(name="right", weight=2, words="It is right."),)
    assert view.problem is None


def test_a_rubric_that_nobody_could_use_is_shown_with_its_problem(file: Path) -> None:
    file.write_text("---\nno end\n")
    view = view_rubric(file)
    assert view.source == "---\nno end\n"
    assert view.criteria == ()
    assert view.problem is not None
    assert view.problem.where is not None
    assert view.problem.where.startswith("rubric.md")


def test_a_rubric_that_nobody_could_use_is_not_saved(file: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        save_rubric(file, "---\nno end\n")
    assert (refused.value.problem.where or "").startswith("rubric.md")
    assert not file.exists()
    assert not versions_file(file).exists()


def test_a_byte_order_mark_is_no_part_of_the_source(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfBe brief.\n")
    assert view_rubric(file).source == "Be brief.\n"


def test_a_file_that_is_no_text_is_named(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="The rubric cannot be read") as refused:
        view_rubric(file)
    problem = refused.value.problem
    assert (problem.code, problem.where) == ("rubric.unreadable", str(file))
    assert "can't decode byte 0xff" in (problem.detail or "")


@pytest.mark.parametrize(("bytes_more", "read"), [(0, True), (1, False)])
def test_sizes_are_bounded(
    file: Path, monkeypatch: pytest.MonkeyPatch, bytes_more: int, read: bool
) -> None:
    save_rubric(file, "One.\n", "Dana")
    size = versions_file(file).stat().st_size
    monkeypatch.setattr(rubric_versions, "MOST_HISTORY_BYTES", size - bytes_more)
    if read:
        assert len(read_versions(file)) == 1
    else:
        with pytest.raises(ConfigError, match="it is larger than"):
            read_versions(file)
    monkeypatch.setattr(rubric_versions, "MOST_HISTORY_BYTES", size)
    monkeypatch.setattr(rubric_versions, "MOST_TEXT_BYTES", len("One.\n") - bytes_more)
    if read:
        assert view_rubric(file).source == "One.\n"
    else:
        with pytest.raises(ConfigError, match="The rubric cannot be read"):
            view_rubric(file)


def test_the_history_is_lines_of_json_beside_the_rubric(file: Path) -> None:
    save_rubric(file, "Ünïcode.\n", "Dana")
    beside = file.parent / "rubric.versions.jsonl"
    assert versions_file(file) == beside
    text = beside.read_text("utf-8")
    assert "Ünïcode" in text
    assert text.endswith("}\n")
    assert json.loads(text) == {
        "number": 1, "version": version_of("Ünïcode.\n"), "source": "Ünïcode.\n",
        "at": 1000.0, "who": "Dana",
    }  # fmt: skip


def test_empty_lines_of_the_history_are_skipped(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    beside = versions_file(file)
    beside.write_text("\n" + beside.read_text() + " \n" + beside.read_text())
    assert [one.source for one in read_versions(file)] == ["One.\n", "One.\n"]


def test_a_line_that_is_no_version_is_named(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    beside = versions_file(file)
    beside.write_text(beside.read_text() + '{"number": "x"}\n')
    with pytest.raises(ConfigError, match=r"This line is not a version of a rubric\.") as refused:
        read_versions(file)
    problem = refused.value.problem
    assert (problem.code, problem.where) == ("rubric.bad_history", f"{beside}:2")
    assert problem.hint is not None
    assert problem.hint.startswith("Delete the line, or move the file away;")
    assert (problem.detail or "").startswith("5 validation errors for RubricVersion")
    assert len(problem.detail or "") == 500


def test_a_history_that_is_a_link_is_not_followed(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    beside = versions_file(file)
    beside.rename(file.parent / "elsewhere")
    beside.symlink_to(file.parent / "elsewhere")
    with pytest.raises(ConfigError, match="The versions of the rubric cannot be read") as refused:
        read_versions(file)
    problem = refused.value.problem
    assert (problem.code, problem.where) == ("rubric.bad_history", str(beside))
    assert problem.hint == "Move the file away; this does not change the rubric."
    assert len(problem.message) < 300
