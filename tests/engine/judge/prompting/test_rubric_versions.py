"""Version history of a rubric: the full source of every saved version."""

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


def test_unicode_line_separators_do_not_split_a_version(file: Path) -> None:
    for source in ("Be brief.\u2028Be right.\n", "Be brief.\u0085Be kind.\n"):
        save_rubric(file, source)
    assert [one.source for one in view_rubric(file).versions] == [
        "Be brief.\u2028Be right.\n",
        "Be brief.\u0085Be kind.\n",
    ]


def test_missing_or_blank_file_has_no_versions(file: Path) -> None:
    assert view_rubric(file) == RubricView(source="", version=version_of(""))
    file.write_text(" \n")
    assert view_rubric(file).versions == []
    assert not versions_file(file).exists()


def test_saved_versions_have_number_and_author(file: Path) -> None:
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


def test_unchanged_source_is_not_stored_again(file: Path) -> None:
    for source in ("One.\n", "One.\n", "Two.\n", "One.\n"):
        save_rubric(file, source, "Dana")
    assert [one.source for one in read_versions(file)] == ["One.\n", "Two.\n", "One.\n"]


def test_external_change_is_stored_on_view(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    file.write_text("Other.\n")
    view = view_rubric(file)
    assert view.source == "Other.\n"
    assert [(one.source, one.who) for one in view.versions] == [
        ("One.\n", "Dana"),
        ("Other.\n", "outside"),
    ]
    assert view_rubric(file).versions == view.versions


def test_external_change_is_stored_before_overwrite(file: Path) -> None:
    file.write_text("Other.\n")
    save_rubric(file, "Mine.\n", "Dana")
    assert [one.source for one in read_versions(file)] == ["Other.\n", "Mine.\n"]


def test_view_of_read_only_project_stores_no_version(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    file.write_text("Other.\n")
    monkeypatch.setattr(rubric_versions, "replace_file", refuse)
    view = view_rubric(file)
    assert (view.source, view.versions) == ("Other.\n", [])


def test_view_contains_criteria(file: Path) -> None:
    view = save_rubric(file, CRITERIA)
    assert view.criteria == (Criterion(name="right", weight=2, words="It is right."),)
    assert view.problem is None


def test_view_of_invalid_rubric_contains_the_problem(file: Path) -> None:
    file.write_text("---\nno end\n")
    view = view_rubric(file)
    assert view.source == "---\nno end\n"
    assert view.criteria == ()
    assert view.problem is not None
    assert view.problem.where is not None
    assert view.problem.where.startswith("rubric.md")


def test_invalid_rubric_is_not_saved(file: Path) -> None:
    with pytest.raises(ConfigError) as error:
        save_rubric(file, "---\nno end\n")
    assert (error.value.problem.where or "").startswith("rubric.md")
    assert not file.exists()
    assert not versions_file(file).exists()


def test_byte_order_mark_is_stripped(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfBe brief.\n")
    assert view_rubric(file).source == "Be brief.\n"


def test_non_utf8_file_raises_config_error_with_path(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="The rubric cannot be read") as error:
        view_rubric(file)
    problem = error.value.problem
    assert (problem.code, problem.where) == ("rubric.unreadable", str(file))
    assert "can't decode byte 0xff" in (problem.detail or "")


@pytest.mark.parametrize(("bytes_more", "read"), [(0, True), (1, False)])
def test_history_and_rubric_sizes_are_limited(
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


def test_history_is_json_lines_beside_the_rubric(file: Path) -> None:
    save_rubric(file, "Ünïcode.\n", "Dana")
    versions_path = file.parent / "rubric.versions.jsonl"
    assert versions_file(file) == versions_path
    text = versions_path.read_text("utf-8")
    assert "Ünïcode" in text
    assert text.endswith("}\n")
    assert json.loads(text) == {
        "number": 1, "version": version_of("Ünïcode.\n"), "source": "Ünïcode.\n",
        "at": 1000.0, "who": "Dana",
    }  # fmt: skip


def test_blank_history_lines_are_skipped(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    versions_path = versions_file(file)
    versions_path.write_text("\n" + versions_path.read_text() + " \n" + versions_path.read_text())
    assert [one.source for one in read_versions(file)] == ["One.\n", "One.\n"]


def test_invalid_history_line_is_reported_with_its_number(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    versions_path = versions_file(file)
    versions_path.write_text(versions_path.read_text() + '{"number": "x"}\n')
    words = r"This line of the version history is not a version of a rubric\."
    with pytest.raises(ConfigError, match=words) as error:
        read_versions(file)
    problem = error.value.problem
    assert (problem.code, problem.where) == ("rubric.bad_history", f"{versions_path}:2")
    assert problem.hint is not None
    assert problem.hint.startswith("Delete the line, or move the file away;")
    assert (problem.detail or "").startswith("5 validation errors for RubricVersion")
    assert len(problem.detail or "") == 500


def test_symlinked_history_is_rejected(file: Path) -> None:
    save_rubric(file, "One.\n", "Dana")
    versions_path = versions_file(file)
    versions_path.rename(file.parent / "elsewhere")
    versions_path.symlink_to(file.parent / "elsewhere")
    words = "The version history of the rubric cannot be read"
    with pytest.raises(ConfigError, match=words) as error:
        read_versions(file)
    problem = error.value.problem
    assert (problem.code, problem.where) == ("rubric.bad_history", str(versions_path))
    assert problem.hint == "Move the history file away; this does not change the rubric."
    assert len(problem.message) < 300
