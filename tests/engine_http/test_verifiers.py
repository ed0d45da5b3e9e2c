"""Environments of the library verifiers from PyPI train three steps of a real model, and their
rewards and metrics equal verifiers' own evaluation of the same completions."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.environments import python_of
from engine.environments.agent_packages import packages_name
from engine.integrations.packaged_tasks.data_set import load_data
from engine.integrations.verifiers.creation import begin_environment
from engine.integrations.verifiers.export import SPLITS, export_environment
from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.problems import Refused
from engine.protocol.records.runs import RunSummary, Trajectory
from engine.protocol.requests.drafts import EnvironmentData
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.project import edit_text, load_config, load_scenarios, read_toml, write_toml
from tests.engine_http.conftest import ASK, Engine, make_project

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("real_cache")]
EVALUATE = Path(__file__).parents[1] / "agents" / "verifiers" / "evaluate.py"
WORDS = ("about", "bread", "cloud", "dance", "early", "fruit", "glass", "horse", "island", "juice")
"""A word list in the place of NLTK's corpus, which is no package."""
STEPS, GROUPS, SIZE = 3, 2, 4


@pytest.fixture(scope="module")
def long_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with room for 8192 bytes."""
    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return folder


def installed(project: Path, name: str, arguments: dict[str, Any]) -> Path:
    """Create the project of an environment; returns the Python with its packages."""
    begin_environment(project, name, arguments)
    return python_of(packages_name(project, load_config(project).agent))


def read_data(project: Path, model: Path, context: int) -> EnvironmentData:
    found = asyncio.run(load_data(project, 6))
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
    query = TrajectoryQuery(limit=200)
    page = engine.call(lambda client: client.trajectories(run.id, query))
    return [
        engine.call(lambda client, name=row.id: client.trajectory(run.id, name))
        for row in page.items
    ]


def rows_of(project: Path) -> dict[str, dict[str, Any]]:
    """Rows of the data set by the ids of their scenarios."""
    rows = {}
    for split in ("train", "validation"):
        for line in (project / "scenarios" / f"{split}.jsonl").read_text().splitlines():
            item = json.loads(line)
            rows[item["id"]] = item["row"]
    return rows


def evaluated(
    project: Path, python: Path, found: list[Trajectory], rows: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Scores of verifiers for the completions of trajectories."""
    cases = [
        {
            "row": rows[one.scenario_id],
            "answers": [m.content for m in one.messages if m.role == "assistant"],
        }
        for one in found
    ]
    (project / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run(
        [python, EVALUATE, project, project / "cases.json", project / "scores.json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    scores: list[dict[str, Any]] = json.loads((project / "scores.json").read_text())
    return scores


def check_run(engine: Engine, project: Path, python: Path, turns: int) -> list[Trajectory]:
    """Train, and compare each trajectory with verifiers' own evaluation."""
    run = engine.train(project)
    events = engine.wait(run, timeout_s=900)
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert len(steps) == STEPS
    assert max(step.metrics.get("logprob_gap/max", 0.0) for step in steps) <= 1e-4
    found = trajectories(engine, run)
    assert [one.problem for one in found if one.problem] == []
    trained = [one for one in found if one.split == "train"]
    assert len(trained) == STEPS * GROUPS * SIZE
    groups = Counter((one.step, one.group, one.scenario_id) for one in trained)
    assert set(groups.values()) == {SIZE}
    assert max(sum(len(branch.turns) for branch in one.branches) for one in found) >= turns
    for one, score in zip(found, evaluated(project, python, found, rows_of(project)), strict=True):
        assert one.reward == pytest.approx(score["reward"], abs=1e-9)
        assert one.parts == pytest.approx(score["parts"], abs=1e-9)
        own = {name: one.metrics[name] for name in score["metrics"]}  # others are Atelier's
        assert own == pytest.approx(score["metrics"], abs=1e-9)
    return found


AGENT = f"""{ASK.replace('[{"role": "user", "content": question}]', "question")}
async def rollout(scenario, model):
    messages = [{{"role": "user", "content": scenario["q"]}}]
    first = await ask(model, messages)
    messages += [{{"role": "assistant", "content": first}}, {{"role": "user", "content": "go"}}]
    second = await ask(model, messages)
    letters = sum(c.isalpha() for c in first + second)
    return {{
        "rewards": {{"letters": letters / 16, "long": float(len(second) > 6)}},
        "metrics": {{"length": len(first) + len(second)}},
    }}
"""
"""Agent of two turns with two reward parts."""
REWARDS = """
def vowels(scenario, result):
    return result["metrics"]["length"] / 10 + len(scenario["q"])
"""
BLEND = """
[reward]
required = ["letters"]
weights = { letters = 2.0, long = 0.5, vowels = 0.1 }

[[reward.constraints]]
part = "length"
above = 12
effect = "penalty"
value = 0.25
"""


def test_exported_package_scores_stored_trajectories_alike(
    engine: Engine, workspace: Path, tiny_model: Path, tmp_path: Path
) -> None:
    project = make_project(workspace / "letters-twice", tiny_model)
    (project / "agent.py").write_text(AGENT)
    (project / "rewards.py").write_text(REWARDS)
    toml = (project / "project.toml").read_text()
    (project / "project.toml").write_text(toml + BLEND)
    run = engine.train(project)
    assert isinstance(engine.wait(run)[-1], RunFinished)
    found = [one for one in trajectories(engine, run) if not one.problem]
    assert len(found) >= 20
    out = tmp_path / "package"
    assert export_environment(project, out) == "letters-twice-environment"
    python = installed(workspace / "any", "textarena", {"game": "Hangman-v0"})
    place = tmp_path / "evaluation"
    options = ("--no-deps", "--quiet", "--target", str(place / "environment"))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(out)], check=True)
    module = "letters_twice_environment"
    settings = {"module": module, "kind": "taskset", "arguments": {}, "own_agent": True}
    (place / "environment.json").write_text(json.dumps(settings))
    rows = {
        scenario.id: {"prompt": scenario.title, "scenario": scenario.data}
        for split in SPLITS
        for scenario in load_scenarios(project, load_config(project), split)
    }
    assert len({one.metrics["length"] > 12 for one in found}) == 2
    for one, score in zip(found, evaluated(place, python, found, rows), strict=True):
        assert one.reward == pytest.approx(score["reward"], abs=1e-9)
        assert score["metrics"] == {"length": one.metrics["length"]}
        config = load_config(project).reward
        weighted = {name: config.weights[name] * value for name, value in one.parts.items()}
        penalty = -0.25 if one.metrics["length"] > 12 else 0.0
        assert score["parts"] == pytest.approx(weighted | {"constraints": penalty}, abs=1e-9)


@pytest.mark.parametrize("folder", ["tool_environment", "tool_tasks"])
def test_folder_with_tools_trains(
    engine: Engine, workspace: Path, long_model: Path, folder: str
) -> None:
    project = workspace / folder
    source = EVALUATE.parent / folder
    installed(project, str(source), {"count": 8})
    read_data(project, long_model, 4096)
    write_toml(project, edit_text(read_toml(project), {"train.steps": 1}))
    assert load_config(project).reward.weights == {"right": 2.0}
    run = engine.train(project)
    events = engine.wait(run, timeout_s=900)
    assert isinstance(events[-1], RunFinished), events[-1]
    found = trajectories(engine, run)
    assert [one.problem for one in found if one.problem] == []
    assert {tuple(one.parts) for one in found} == {("right",)}
    assert all("add" in json.dumps(one.tools) for one in found)


def test_group_rewards_are_refused_and_exceptions_leave_rollouts_unscored(
    engine: Engine, workspace: Path, long_model: Path
) -> None:
    project, source = workspace / "broken", EVALUATE.parent / "tool_environment"
    installed(project, str(source), {"group": True})
    with pytest.raises(Refused, match="the reward function best scores a whole group at once"):
        read_data(project, long_model, 4096)
    installed(project, str(source), {"weight": 1.0})
    read_data(project, long_model, 4096)
    run = engine.train(project, **{"train.steps": 1, "train.validate_every": 0})
    engine.wait(run, timeout_s=300)
    found = trajectories(engine, run)
    assert {one.reward for one in found} == {None}
    words = "the reward function broken raised KeyError"
    assert all(one.problem and words in one.problem.message for one in found)


def test_single_turn_environment_trains_in_a_sandbox(
    engine: Engine, workspace: Path, long_model: Path
) -> None:
    project = workspace / "advocacy"
    arguments = {"n_items": 8, "passage_chars": 60}
    python = installed(project, "sophistry-bench-sprint==0.1.6", arguments)
    data = read_data(project, long_model, 4096)
    assert (data.train, data.sandboxed) == (6, True)
    config = load_config(project)
    assert config.agent.sandbox == "process"
    assert config.reward.required == ("aggregate_reward",)
    found = check_run(engine, project, python, turns=1)
    assert {tuple(one.parts) for one in found} == {("aggregate_reward",)}
    assert {"n_claims_metric", "num_turns", "correctness_reward"} <= found[0].metrics.keys()


def test_task_set_of_several_turns_trains(
    engine: Engine, workspace: Path, long_model: Path
) -> None:
    project = workspace / "hangman"
    python = installed(project, "textarena", {"game": "Hangman-v0"})
    words = python.parents[1] / "nltk_data" / "corpora" / "words"
    words.mkdir(parents=True, exist_ok=True)
    for name in ("en", "en-basic"):
        (words / name).write_text("\n".join(WORDS) + "\n")
    data = read_data(project, long_model, 8192)
    assert data.notes[0].startswith("The tasks never end")
    settings = json.loads((project / "environment.json").read_text())
    (project / "environment.json").write_text(json.dumps(settings | {"role": "player"}))
    found = check_run(engine, project, python, turns=2)
    assert {tuple(one.parts) for one in found} == {("game_reward",)}
