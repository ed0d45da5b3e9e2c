"""Logs of a stored evaluation: files, samples, results; Inspect itself reads them in
tests/engine_http/test_inspect.py."""

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from engine.cli.parser import parse
from engine.integrations.inspect.logs import write_logs
from engine.protocol.problems import Refused, StoreError
from engine.storage.run_folder.run import read_spec, run_reader
from tests.engine.integrations.inspect.stored_evaluation import make_evaluation


def written(run: Path, target: Path) -> list[Path]:
    with run_reader(run) as reader:
        return write_logs(reader, read_spec(run), run, target)


def read(file: Path, member: str) -> Any:
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read(member))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(make_evaluation(tmp_path), tmp_path / "logs")[0]


def test_log_per_model_with_a_file_per_sample(tmp_path: Path) -> None:
    files = written(make_evaluation(tmp_path), tmp_path / "logs")
    assert [file.name.split("_")[:2] for file in files] == [
        ["2026-09-22T18-00-00-00-00", "letters-base"],
        ["2026-09-22T18-00-00-00-00", "letters-openai-gpt-5.4"],
    ]
    assert sorted((tmp_path / "logs").iterdir()) == sorted(files)
    with zipfile.ZipFile(files[0]) as archive:
        names = archive.namelist()
    samples = [f"samples/{name}_epoch_{n}.json" for name in ("s0", "s1", "a_2#2") for n in (1, 2)]
    assert names == [
        "_journal/start.json",
        *samples,
        "_journal/summaries/1.json",
        "summaries.json",
        "reductions.json",
        "header.json",
    ]
    assert [read(file, "header.json")["eval"]["model"] for file in files] == [
        "atelier/base",
        "openai/gpt-5.4",
    ]


def test_sample_has_messages_tool_calls_scores_and_usage(log: Path) -> None:
    sample = read(log, "samples/s0_epoch_1.json")
    assert sample["target"] == ["table", "desk"]
    assert [one["role"] for one in sample["input"]] == ["system", "user"]
    asked = sample["messages"][2]
    assert asked["content"][0] == {"type": "reasoning", "reasoning": "Search first."}
    first, second = asked["tool_calls"]
    assert first == {
        "id": "c1",
        "function": "search",
        "arguments": {"word": "apple"},
        "type": "function",
    }
    assert second["arguments"] == {}
    assert second["parse_error"].endswith("{word")
    assert sample["messages"][3]["tool_call_id"] == "c1"
    assert sample["output"]["completion"] == "It is on the table."
    assert sample["output"]["choices"][0]["stop_reason"] == "stop"
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    assert sample["output"]["usage"] == usage
    assert sample["model_usage"] == {"atelier/base": usage}
    assert {name: score["value"] for name, score in sample["scores"].items()} == {
        "reward": 0.25,
        "rules": 0.125,
        "ruler": 0.125,
    }
    assert sample["scores"]["ruler"]["explanation"] == "It found the apple."
    assert sample["metadata"]["moves"] == 3.0


def test_unscored_rollout_is_an_error_and_no_zero(log: Path) -> None:
    sample = read(log, "samples/s1_epoch_2.json")
    assert sample["scores"] == {}
    assert sample["error"]["message"] == "It fell."
    summaries = {(one["id"], one["epoch"]): one for one in read(log, "summaries.json")}
    assert summaries["s1", 2]["error"] == "It fell."
    results = read(log, "header.json")["results"]
    assert (results["total_samples"], results["completed_samples"]) == (6, 5)


def test_results_are_means_over_scenarios_of_means_over_attempts(log: Path) -> None:
    (reward, *_) = read(log, "header.json")["results"]["scores"]
    means = [0.5, 1.0, 0.25]
    mean = sum(means) / 3
    error = math.sqrt(sum((one - mean) ** 2 for one in means) / 2 / 3)
    assert reward["metrics"]["mean"]["value"] == pytest.approx(mean)
    assert reward["metrics"]["stderr"]["value"] == pytest.approx(error)
    assert reward["scored_samples"] == 3
    rows = read(log, "reductions.json")[0]["samples"]
    assert [row["value"] for row in rows] == means


def test_each_system_prompt_has_a_log(tmp_path: Path) -> None:
    files = written(make_evaluation(tmp_path, ("brief", "kind")), tmp_path / "logs")
    specs = [read(file, "header.json")["eval"] for file in files]
    found = [(spec["model"], spec["task_args"]["system_prompt"]) for spec in specs]
    assert found == [
        (model, prompt)
        for model in ("atelier/base", "openai/gpt-5.4")
        for prompt in ("brief", "kind")
    ]
    epochs = [read(file, "summaries.json")[0]["epoch"] for file in files]
    assert epochs == [1, 1, 1, 1]


def test_unfinished_evaluation_is_cancelled(tmp_path: Path) -> None:
    run = make_evaluation(tmp_path)
    spec = read_spec(run)
    assert spec.evaluation is not None
    longer = spec.evaluation.model_copy(update={"scenarios": 4})
    with run_reader(run) as reader:
        more = spec.model_copy(update={"evaluation": longer})
        (file, *_) = write_logs(reader, more, run, tmp_path / "logs")
    assert read(file, "header.json")["status"] == "cancelled"


def test_existing_log_is_kept(tmp_path: Path) -> None:
    run = make_evaluation(tmp_path)
    (file, *_) = written(run, tmp_path / "logs")
    before = file.read_bytes()
    with pytest.raises(StoreError, match="File exists"):
        written(run, tmp_path / "logs")
    assert file.read_bytes() == before


def test_run_that_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    run = make_evaluation(tmp_path)
    spec = read_spec(run).model_copy(update={"evaluation": None})
    with run_reader(run) as reader, pytest.raises(Refused, match="is not an evaluation"):
        write_logs(reader, spec, run, tmp_path / "logs")


def test_command_writes_the_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_evaluation(tmp_path)
    arguments = parse(["trajectories", str(run), "--inspect", str(tmp_path / "logs")])
    assert arguments.command(arguments) == 0
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 2
    assert "inspect view --log-dir" in capsys.readouterr().out
