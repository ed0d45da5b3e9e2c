"""Tasks of Inspect train two steps of a real model, with reward parts equal to Inspect's own scores
of the same completions."""

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
from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.records.runs import RunSummary, Trajectory
from engine.protocol.requests.drafts import EnvironmentData
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.project import edit_text, load_config, read_toml, write_toml
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


def test_task_of_a_package_trains(engine: Engine, workspace: Path, long_model: Path) -> None:
    project = workspace / "exfiltration"
    name = "inspect-evals==0.26.0/agent_threat_bench_data_exfil"
    python = installed(project, name, {})
    data = read_data(project, long_model, 12288)
    assert data.train == 4
    values = {"agent.sandbox": "none"}  # many rollouts in one process
    write_toml(project, edit_text(read_toml(project), values))
    check_run(engine, project, python)
