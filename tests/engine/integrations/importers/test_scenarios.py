"""Beginnings of conversations as scenarios: each once, whatever the source and the split."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.importers.scenarios import import_scenarios
from engine.protocol.problems import ConfigError
from engine.storage.project import read_scenarios
from tests.engine.integrations.importers.traces.files import (
    FINAL,
    QUESTION,
    SYSTEM,
    TOOL,
    langfuse_calls,
    write_lines,
)

OTHER = {"role": "user", "content": "Write to ann@x.org"}


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_beginnings_are_appended_once(project: Path, tmp_path: Path) -> None:
    (project / "scenarios").mkdir()
    file = project / "scenarios" / "train.jsonl"
    file.write_text('{"id": "own", "question": "?"}')
    talks = [[SYSTEM, QUESTION, FINAL], [SYSTEM, QUESTION, {**FINAL, "content": "No"}], [FINAL]]
    source = write_lines(tmp_path / "a.jsonl", *talks, [OTHER, FINAL])
    done = import_scenarios(project, source)
    assert (done.new, done.repeated, done.path) == (2, 1, str(file))
    assert done.notes == ["Conversations that begin with an answer, omitted: 1."]
    own, first, second = lines(file)
    assert own == {"id": "own", "question": "?"}
    assert (first["title"], first["messages"]) == ("Weather in Paris?", [SYSTEM, QUESTION])
    assert second["messages"] == [OTHER]
    assert "tools" not in first
    scenarios, problems = read_scenarios(file)
    assert ([one.title for one in scenarios][1:], problems) == (
        ["Weather in Paris?", "Write to ann@x.org"],
        [],
    )
    before = file.read_bytes()
    again = import_scenarios(project, source)
    assert (again.new, again.repeated) == (0, 3)
    assert file.read_bytes() == before


def test_training_scenario_does_not_join_validation(project: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [QUESTION, FINAL])
    assert import_scenarios(project, source).new == 1
    more = write_lines(tmp_path / "b.jsonl", [QUESTION, FINAL], [OTHER, FINAL])
    done = import_scenarios(project, more, "validation")
    assert (done.new, done.repeated, done.split) == (1, 1, "validation")
    assert [one["messages"] for one in lines(Path(done.path))] == [[OTHER]]


def test_traces_keep_their_tools(project: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", *langfuse_calls())
    (one,) = lines(Path(import_scenarios(project, source).path))
    assert one["messages"] == [SYSTEM, QUESTION]
    assert one["tools"] == [{"type": "function", "function": TOOL}]


def test_masked_scenarios_are_recognised_with_other_numbers(project: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [OTHER, FINAL])
    done = import_scenarios(project, source, mask=True)
    assert done.notes == ["Masked: e-mail addresses 1."]
    first = [{"role": "user", "content": "I am bob@x.org"}, FINAL]
    more = write_lines(tmp_path / "b.jsonl", first, [OTHER, FINAL])
    again = import_scenarios(project, more, mask=True)
    assert (again.new, again.repeated) == (1, 1)
    contents = [one["messages"][0]["content"] for one in lines(Path(again.path))]
    assert contents == ["Write to <EMAIL_1>", "I am <EMAIL_1>"]


@pytest.mark.parametrize("damaged", ["scenarios", "source"])
def test_damaged_file_changes_nothing(project: Path, tmp_path: Path, damaged: str) -> None:
    (project / "scenarios").mkdir()
    file = project / "scenarios" / "train.jsonl"
    file.write_text("{}\n" if damaged == "source" else "{\n")
    source = write_lines(tmp_path / "a.jsonl", [QUESTION, FINAL])
    if damaged == "source":
        source.write_text(source.read_text() + "{")
    before = file.read_bytes()
    with pytest.raises(ConfigError) as error:
        import_scenarios(project, source)
    assert "line" in error.value.problem.message
    assert file.read_bytes() == before


def test_project_without_validation_file_is_refused(project: Path, tmp_path: Path) -> None:
    text = '[model]\nname = "none"\n[scenarios]\nvalidation = ""\n'
    (project / "project.toml").write_text(text)
    source = write_lines(tmp_path / "a.jsonl", [QUESTION, FINAL])
    with pytest.raises(ConfigError, match="no file for validation scenarios"):
        import_scenarios(project, source, "validation")
