"""Project files: errors name file and line; edits keep comments; scenarios are read and written."""

import tomllib
from pathlib import Path

import pytest

from engine.protocol.problems import ConfigError
from engine.storage.project import (
    check_text,
    edit_text,
    load_config,
    read_scenarios,
    write_scenarios,
    write_toml,
)

TOML = """\
# my notes
name = "x"

[train]
steps = 5   # few
lr = 2e-4
"""


def project(tmp_path: Path, toml: str) -> Path:
    (tmp_path / "project.toml").write_text(toml)
    return tmp_path


@pytest.mark.parametrize(
    ("toml", "code", "where", "message"),
    [
        ("[train]\nlearning_rat = 1", "config.unknown_key", "line 2", "`learning_rat` in [train]"),
        ("[train]\nstep = 1", "config.unknown_key", "line 2", "Did you mean `steps`?"),
        ("[modle]\n", "config.unknown_key", "line 1", "Did you mean `model`?"),
        ("[train]\n\nsteps = 'many'", "config.bad_value", "line 3", "train.steps should be"),
        ("[train]\nsteps = 0", "config.bad_value", "line 2", "greater than or equal to 1"),
        ("[train\n", "config.bad_toml", "line 1", "Expected"),
        (f"[train]\nlr = {'9' * 5000}\n", "config.bad_toml", "project.toml", "4300 digits"),
        ("[model]\ndtype = 'int4'", "config.bad_value", "line 2", "'auto', 'float32'"),
        ("train.algorithm.advantage.kind = 'x'", "config.bad_value", "line 1", "advantage"),
    ],
)
def test_invalid_project_toml_is_reported_with_its_line(
    tmp_path: Path, toml: str, code: str, where: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(project(tmp_path, toml))
    problem = raised.value.problem
    assert (problem.code, where in problem.where) == (code, True), problem
    assert message in str(problem)


@pytest.mark.parametrize("text", [f"x = {'9' * 5000}", "[train", f"a = {'[' * 3000}", "a=1\na=2"])
def test_invalid_toml_is_not_edited(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        edit_text(text, {"train.steps": 3})
    assert raised.value.problem.code == "config.bad_toml"
    assert edit_text(text, {}) == text, "an empty edit should leave the text unchanged"


def test_check_text_finds_all_problems_at_once() -> None:
    assert len(check_text("[train]\nsteps = 0\nlr = -1\nfoo = 1")) == 3


def test_missing_or_non_utf8_project_raises_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no project\.toml"):
        load_config(tmp_path)
    (tmp_path / "project.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path)


def test_overrides_are_validated_like_the_file(tmp_path: Path) -> None:
    folder = project(tmp_path, TOML)
    assert load_config(folder, {"train.lr": 1e-3, "model.rank": 4}).train.lr == 1e-3
    with pytest.raises(ConfigError, match=r"Did you mean `lr`"):
        load_config(folder, {"train.lrr": 1})
    with pytest.raises(ConfigError, match=r"no setting name\.x"):
        load_config(folder, {"name.x": 1})


def test_edits_keep_comments_and_invalid_toml_is_not_written(tmp_path: Path) -> None:
    edited = edit_text(TOML, {"train.steps": 9, "train.lr": None, "model.rank": 8})
    assert "# my notes" in edited
    assert "steps = 9   # few" in edited
    assert "lr" not in edited
    folder = project(tmp_path, TOML)
    write_toml(folder, edited)
    assert load_config(folder).model.rank == 8
    with pytest.raises(ConfigError):
        write_toml(folder, edited + "\n[bad]\n")
    assert (folder / "project.toml").read_text() == edited


def test_preset_replaces_other_algorithm_settings() -> None:
    text = TOML + "\n[train.algorithm]\nkl = 0.1\n\n[train.algorithm.loss]\nkind = 'gspo'\n"
    section = "train.algorithm"
    edited = edit_text(text, {section: None, f"{section}.preset": "dapo"})
    algorithm = tomllib.loads(edited)["train"]["algorithm"]
    assert algorithm == {"preset": "dapo"}
    assert "# few" in edited
    assert check_text(edited) == []
    assert tomllib.loads(edit_text(TOML, {section: None, f"{section}.preset": "ppo"}))["train"][
        "algorithm"
    ] == {"preset": "ppo"}


def test_read_scenarios_names_every_bad_line(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    good, bad = b'{"id": "a", "q": 1}\n\n', b'not json\n[1]\n{"q": "\xff"}\n{"id": "a"}\n'
    file.write_bytes(good + bad + b'{"id": "b"}\n')
    scenarios, problems = read_scenarios(file)
    assert [s.id for s in scenarios] == ["a", "b"]
    assert [(p.code, p.where) for p in problems] == [
        ("scenarios.bad_json", "train.jsonl, line 3"),
        ("scenarios.bad_json", "train.jsonl, line 4"),
        ("scenarios.not_utf8", "train.jsonl, line 5"),
        ("scenarios.duplicate", "train.jsonl, line 6"),
    ]


def test_empty_and_missing_scenario_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    assert read_scenarios(tmp_path / "empty.jsonl")[1][0].code == "scenarios.empty"
    assert read_scenarios(tmp_path / "no.jsonl")[1][0].code == "scenarios.missing"


def test_written_scenarios_are_read_back(tmp_path: Path) -> None:
    items = [{"question": "où?", "id": 1}, {"question": "wo?"}]
    write_scenarios(tmp_path / "s" / "t.jsonl", items)
    scenarios, problems = read_scenarios(tmp_path / "s" / "t.jsonl")
    assert [s.data for s in scenarios] == items
    assert [s.title for s in scenarios] == ["où?", "wo?"]
    assert problems == []
