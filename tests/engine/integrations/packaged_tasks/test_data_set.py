"""Scenarios from an environment's data set: splits, titles, weights; programs that fail."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.integrations.packaged_tasks import data_set
from engine.integrations.packaged_tasks.data_set import Description, exception_of, scenarios, split
from engine.integrations.packaged_tasks.project import read_settings
from engine.integrations.verifiers.creation import begin_environment
from engine.protocol.problems import ConfigError, Refused
from engine.storage.project import load_config, load_scenarios

CODE = "def load_environment(n=1):\n    ...\n"
AGENT = """
import json, os, sys
rows = [{"prompt": [{"role": "user", "content": f"What is {n} + {n}?"}], "answer": str(2 * n)}
        for n in range(COUNT)]
values = {"train": rows, "validation": None, "total": 50, "weights": {"right": 2.0, "turns": 0.0}}
if __name__ == "__main__":
    json.dump(values, open(sys.argv[1], "w"))
"""


def described(count: int, **values: Any) -> Description:
    rows = [{"question": f"Q{n}"} for n in range(count)]
    return Description.model_validate({"train": rows, "weights": {}, **values})


@pytest.mark.parametrize(
    ("count", "train", "validation"), [(1, 1, 0), (2, 1, 1), (4, 3, 1), (10, 8, 2), (700, 500, 100)]
)
def test_every_fifth_row_is_held_out(count: int, train: int, validation: int) -> None:
    rows, held_out = split(described(count), 500)
    assert (len(rows), len(held_out)) == (train, validation)
    assert not {row["question"] for row in rows} & {row["question"] for row in held_out}


def test_own_validation_data_is_used() -> None:
    rows, held_out = split(described(10, validation=[{"question": "V"}]), 6)
    assert [row["question"] for row in rows] == [f"Q{n}" for n in range(6)]
    assert held_out == [{"question": "V"}]


def test_scenario_has_the_row_and_a_title() -> None:
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": " two\n words"}]
    rows = [
        {"prompt": chat},
        {"name": "named", "prompt": "p"},
        {"prompt": None},
        {"prompt": "text"},
    ]
    found = scenarios(rows, "t")
    assert [one["title"] for one in found] == ["two words", "named", "Row 3", "text"]
    assert [one["id"] for one in found] == ["t00001", "t00002", "t00003", "t00004"]
    assert [one["row"] for one in found] == rows


def test_exception_is_the_last_one_of_the_output() -> None:
    text = "warning\nTraceback (most recent call last):\n  File\nLookupError: \n***\n  a word.\n"
    assert exception_of(text) == "LookupError: a word"
    assert exception_of("killed") == "killed"
    assert exception_of("") == ""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Project whose agent needs no packages, so that this interpreter describes it."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "sums.py").write_text(CODE)
    folder = tmp_path / "project"
    begin_environment(folder, str(source), {})
    (folder / "agent.py").write_text(AGENT.replace("COUNT", "12"))

    async def python(*_: object) -> str:
        return sys.executable

    monkeypatch.setattr(data_set, "packages_python", python)
    return folder


def test_data_set_becomes_scenarios(project: Path) -> None:
    found = asyncio.run(data_set.load_data(project, 500))
    assert (found.train, found.validation) == (10, 2)
    assert found.notes[0].startswith("The data set has 50 rows; the first 12 were taken.")
    config = load_config(project)
    assert config.reward.weights == {"right": 2.0}
    assert config.reward.required == ("right",)
    assert config.agent.sandbox == ("process" if found.sandboxed else "none")
    assert config.model.max_context == 1024
    train = load_scenarios(project, config, "train")
    assert train[0].title == "What is 0 + 0?"
    assert train[0].data["row"]["answer"] == "0"
    assert len(load_scenarios(project, config, "validation")) == 2
    assert read_settings(project)["weights"] == {"right": 2.0, "turns": 0.0}


def test_environment_that_needs_its_home_runs_without_sandbox(project: Path) -> None:
    code = f"import os\nassert os.environ['HOME'] == {str(Path.home())!r}, 'no home'\n"
    (project / "agent.py").write_text(code + AGENT.replace("COUNT", "12"))
    found = asyncio.run(data_set.load_data(project, 500))
    assert not found.sandboxed
    assert "agent.sandbox is none" in found.notes[-1]
    assert load_config(project).agent.sandbox == "none"


def test_task_set_that_calls_servers_runs_without_sandbox(project: Path) -> None:
    settings = read_settings(project) | {"kind": "taskset", "needs_servers": True}
    (project / "environment.json").write_text(json.dumps(settings))
    found = asyncio.run(data_set.load_data(project, 500))
    assert not found.sandboxed
    assert found.notes[-1].startswith("The task needs servers, so its code runs with")
    assert load_config(project).reward.weights == {"right": 2.0, "turns": 0.0}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise TypeError('unexpected argument n')", "TypeError: unexpected argument n."),
        ("open(__import__('sys').argv[1], 'w').write('{')", "data cannot be read"),
        (
            "import sys\nopen(sys.argv[1], 'w').write('{\"train\": [], \"weights\": {}}')",
            "is empty",
        ),
        ("raise SystemExit(3)", "cannot be loaded: exit 3."),
    ],
)
def test_failure_is_named_and_nothing_is_written(project: Path, code: str, words: str) -> None:
    before = (project / "project.toml").read_text()
    (project / "agent.py").write_text(code)
    with pytest.raises(Refused) as error:
        asyncio.run(data_set.load_data(project, 5))
    assert words in str(error.value)
    assert (project / "project.toml").read_text() == before
    assert not (project / "scenarios").exists()


def test_data_of_untrusted_or_other_projects_is_not_read(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in ("agent.py", "environment.json", "project.toml", "requirements.txt"):
        (copy / file).write_bytes((project / file).read_bytes())
    with pytest.raises(Refused, match="not trusted"):
        asyncio.run(data_set.load_data(copy, 5))
    (project / "environment.json").unlink()
    with pytest.raises(ConfigError, match="is not a project of a packaged task"):
        asyncio.run(data_set.load_data(project, 5))


def test_missing_packages_are_named(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (project / "requirements.txt").write_text("a-package-that-nobody-installs==1\n")
    with pytest.raises(ConfigError, match="packages that are not installed"):
        asyncio.run(data_set.load_data(project, 5))
