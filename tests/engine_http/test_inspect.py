"""Tasks of Inspect train two steps of a real model, with reward parts equal to Inspect's own scores
of the same completions; Inspect's own reader opens the log of an evaluation."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.environments import python_of
from engine.environments.agent_packages import packages_name
from engine.integrations.inspect.creation import begin_task, load_task_data
from engine.integrations.inspect.logs import write_logs
from engine.protocol.events.run import EvaluationFinished, RunFinished, StepFinished
from engine.protocol.problems import Refused
from engine.protocol.records.runs import RunSummary, Trajectory
from engine.protocol.requests.drafts import EnvironmentData
from engine.protocol.requests.runs import StartEvaluation, TrajectoryQuery
from engine.storage.project import edit_text, load_config, read_toml, write_toml
from engine.storage.run_folder.run import read_spec, run_reader
from tests.engine_http.conftest import Engine

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("real_cache")]
FILES = Path(__file__).parents[1] / "agents" / "inspect"
STEPS, GROUPS, SIZE = 2, 2, 4


@pytest.fixture(scope="module")
def long_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with room for 16384 bytes."""
    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16384}))
    return folder


def installed(project: Path, name: str, arguments: dict[str, Any]) -> Path:
    """Create the project of a task, with locked packages; returns the Python with them."""
    begin_task(project, name, arguments)
    shutil.copyfile(FILES / "requirements.txt", project / "requirements.txt")
    return python_of(packages_name(project, load_config(project).agent))


def read_data(project: Path, model: Path, context: int) -> EnvironmentData:
    found = asyncio.run(load_task_data(project, 4))
    values = {
        "model.name": str(model),
        "model.dtype": "float32",
        "model.max_context": context,
        "model.rank": 4,
        "train.steps": STEPS,
        "train.groups": GROUPS,
        "train.group_size": SIZE,
        "train.max_tokens": 12,
        "train.lr": 1e-2,
        "train.validate_every": STEPS,
    }
    write_toml(project, edit_text(read_toml(project), values))
    return found


def trajectories(engine: Engine, run: RunSummary) -> list[Trajectory]:
    page = engine.call(lambda client: client.trajectories(run.id, TrajectoryQuery(limit=200)))
    return [
        engine.call(lambda client, name=row.id: client.trajectory(run.id, name))
        for row in page.items
    ]


def own_scores(project: Path, python: Path, found: list[Trajectory]) -> list[dict[str, float]]:
    """Scores of Inspect for the completions of trajectories."""
    rows = {}
    for split in ("train", "validation"):
        for line in (project / "scenarios" / f"{split}.jsonl").read_text().splitlines():
            item = json.loads(line)
            rows[item["id"]] = item["row"]
    cases = [
        {
            "row": rows[one.scenario_id],
            "answers": [m.content for m in one.messages if m.role == "assistant"],
        }
        for one in found
    ]
    (project / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run(
        [python, FILES / "evaluate.py", project, project / "cases.json", project / "scores.json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    scores: list[dict[str, float]] = json.loads((project / "scores.json").read_text())
    return scores


def check_run(engine: Engine, project: Path, python: Path) -> list[Trajectory]:
    """Train, and compare each trajectory with Inspect's own evaluation."""
    run = engine.train(project)
    events = engine.wait(run, timeout_s=900)
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert len(steps) == STEPS
    assert max(step.metrics.get("logprob_gap/max", 0.0) for step in steps) <= 1e-4
    found = trajectories(engine, run)
    assert [one.problem for one in found if one.problem] == []
    assert sum(one.split == "train" for one in found) == STEPS * GROUPS * SIZE
    for one, scores in zip(found, own_scores(project, python, found), strict=True):
        assert one.parts == pytest.approx(scores, abs=1e-9)
        assert one.reward == pytest.approx(sum(scores.values()), abs=1e-9)
    return found


def test_task_of_a_file_trains_in_a_sandbox(
    engine: Engine, workspace: Path, long_model: Path
) -> None:
    project = workspace / "letters-twice"
    python = installed(project, f"{FILES / 'letters.py'}@letters_twice", {"count": 8})
    data = read_data(project, long_model, 4096)
    assert (data.train, data.validation, data.sandboxed) == (4, 1, True)
    found = check_run(engine, project, python)
    assert {len(one.branches[0].turns) for one in found} == {2}
    assert {tuple(one.parts) for one in found} == {("includes", "letters/share", "letters/answers")}
    assert len({one.reward for one in found}) > 3
    assert "letters in 2 answers" in found[0].output


def test_log_of_an_evaluation_is_read_by_inspect(
    engine: Engine, workspace: Path, long_model: Path, tmp_path: Path
) -> None:
    project = workspace / "letters-twice"
    python = installed(project, f"{FILES / 'letters.py'}@letters_twice", {"count": 8})
    read_data(project, long_model, 4096)
    values = {"agent.sandbox": "none", "evaluate.attempts": 2, "train.max_tokens": 12}
    write_toml(project, edit_text(read_toml(project), values))
    request = StartEvaluation(project=str(project), models=["base"], scenarios="train", attempts=3)
    run = engine.call(lambda client: client.start_evaluation(request))
    events = engine.wait(run, timeout_s=300)
    (finished,) = [event for event in events if isinstance(event, EvaluationFinished)]
    (standing,) = finished.result.standings
    logs = tmp_path / "logs"
    with run_reader(Path(run.path)) as reader:
        (file,) = write_logs(reader, read_spec(Path(run.path)), Path(run.path), logs)
    script = [python, FILES / "read_log.py", tmp_path / "read.json", file]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (log,) = json.loads((tmp_path / "read.json").read_text())
    assert (log["status"], log["model"], log["task"]) == (
        "success",
        "atelier/base",
        "letters_twice",
    )
    assert (log["samples"], log["summaries"], log["errors"]) == (12, 12, 0)
    assert log["is_listed"]
    assert log["same_header"]
    assert standing.reward is not None
    assert log["mean"] == pytest.approx(standing.reward.mean, abs=1e-9)
    assert log["own_mean"] == pytest.approx(log["mean"], abs=1e-9)
    assert log["own_stderr"] == pytest.approx(log["stderr"], abs=1e-9)
    assert log["stderr"] > 0
    assert log["first"]["roles"] == ["user", "assistant", "user", "assistant"]
    assert log["first"]["usage"] > 0


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("in_docker", "the task needs a sandbox of the type docker, not local"),
        ("graded", "a scorer calls the model that is trained; name another model as the grader"),
    ],
)
def test_task_that_cannot_run_is_refused(workspace: Path, task: str, words: str) -> None:
    project = workspace / "refused"
    installed(project, f"{FILES / 'letters.py'}@{task}", {})
    with pytest.raises(Refused) as caught:
        asyncio.run(load_task_data(project, 4))
    assert words in caught.value.problem.message
    assert not (project / "scenarios").exists()


def test_grader_is_another_model(workspace: Path) -> None:
    project = workspace / "graded"
    grader = {"model": "openai-api/local/judge", "base_url": "http://127.0.0.1:9/v1"}
    arguments = {"model_roles": {"grader": grader}}
    installed(project, f"{FILES / 'letters.py'}@graded", arguments)
    data = asyncio.run(load_task_data(project, 4))
    assert (data.train, data.sandboxed) == (3, False)
    assert data.notes[-1].startswith("Scorers call other models")
    assert load_config(project).agent.sandbox == "none"


@pytest.mark.parametrize(
    ("task", "reasons"),
    [
        ("failing", {"no letters here", "gave no score: refusal", "gave no number but 'perhaps'"}),
        ("asked", {"a scorer calls the model that is trained"}),
    ],
)
def test_scorer_without_a_number_leaves_rollouts_unscored(
    engine: Engine, workspace: Path, long_model: Path, task: str, reasons: set[str]
) -> None:
    project = workspace / task
    installed(project, f"{FILES / 'letters.py'}@{task}", {})
    read_data(project, long_model, 1024)
    values = {"agent.sandbox": "none", "scenarios.validation": "", "train.groups": 3}
    write_toml(project, edit_text(read_toml(project), values))
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run, timeout_s=300)
    found = trajectories(engine, run)
    assert len(found) >= 3
    assert {one.reward for one in found} == {None}
    problems = {one.problem.message for one in found if one.problem}
    assert {next(r for r in reasons if r in problem) for problem in problems} == reasons


def test_task_of_a_package_trains(engine: Engine, workspace: Path, long_model: Path) -> None:
    project = workspace / "exfiltration"
    name = "inspect-evals==0.26.0/agent_threat_bench_data_exfil"
    python = installed(project, name, {})
    data = read_data(project, long_model, 12288)
    assert data.train == 4
    values = {"agent.sandbox": "none"}  # many rollouts in one process
    write_toml(project, edit_text(read_toml(project), values))
    check_run(engine, project, python)
