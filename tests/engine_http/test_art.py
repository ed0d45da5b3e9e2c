"""Script with the openpipe-art package on an engine: both store the same data."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.environments import python_of
from engine.integrations.art.train_arguments import TrainArguments
from engine.integrations.importers.storage import open_source
from engine.integrations.scripts.folders import ALPHA, RANK
from engine.launcher.local import Endpoint, find
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.records.runs import Trajectory
from engine.server.services.library import Library
from engine.storage.run_db.reader import RunReader
from tests.engine.integrations.art.test_train_arguments import KEYS
from tests.engine_http.conftest import ROOT, until
from tests.support.processes import is_alive

SCRIPT = Path(__file__).with_name("art_2048.py")
MODEL = Path(".art/2048-multi-turn/models/agent-001")


@dataclass
class Project2048:
    """Working folder of a script, the engine's workspace and the model."""

    folder: Path
    workspace: Path
    model: Path

    def start(self, steps: int) -> "subprocess.Popen[str]":
        names = {"PYTHONPATH": str(ROOT), "ATELIER_WORKSPACE": str(self.workspace)}
        names |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "ATELIER_PYTHON": sys.executable}
        command = [str(python_of("art")), str(SCRIPT), str(self.model), str(steps)]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | names,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, steps: int) -> str:
        return output_of(self.start(steps))

    @property
    def engine(self) -> Endpoint | None:
        return asyncio.run(find(self.workspace))

    def reader(self) -> RunReader:
        run = self.summary
        return RunReader(Path(run.path) / "run.db")

    @property
    def summary(self) -> Any:
        return Library(self.workspace).all_runs()[0]


def output_of(script: "subprocess.Popen[str]") -> str:
    out, err = script.communicate(timeout=240)
    assert script.returncode == 0, err[-4000:]
    return out


@pytest.fixture
def place(workspace: Path, tiny_model: Path, tmp_path: Path) -> Iterator[Project2048]:
    folder = tmp_path / "work"
    folder.mkdir()
    place = Project2048(folder, workspace, tiny_model)
    yield place
    if endpoint := place.engine:
        engine = psutil.Process(endpoint.pid)
        processes = [engine, *engine.children(recursive=True)]
        engine.terminate()
        until(lambda: not any(is_alive(one) for one in processes))


@pytest.mark.long
@pytest.mark.usefixtures("real_cache")
@pytest.mark.timeout(600)
def test_art_script_trains_resumes_and_survives_engine_kill(place: Project2048) -> None:
    assert "step 3" in place.run(3)
    assert place.summary.state == "finished"
    assert (place.summary.step, place.summary.source) == (3, "openpipe-art 0.5.18")

    script = place.start(5)
    until(lambda: place.summary.step == 4, 120)
    endpoint = place.engine
    assert endpoint is not None
    os.kill(endpoint.pid, signal.SIGKILL)
    assert "step 5" in output_of(script)
    again = place.engine
    assert again is not None
    assert again.pid != endpoint.pid

    reader = place.reader()
    try:
        compare_metrics(place, reader)
        compare_trajectories(place, reader)
        assert {one.step for one in reader.checkpoints()} >= {5}
    finally:
        reader.close()


def compare_metrics(place: Project2048, reader: RunReader) -> None:
    """Compare every row of history.jsonl, value for value."""
    lines = (place.folder / MODEL / "history.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    events: list[Any] = reader.events_of("metrics.logged")
    assert [row["step"] for row in rows] == [event.step for event in events]
    assert len(rows) == 10
    for row, event in zip(rows, events, strict=True):
        theirs = {
            name: value
            for name, value in row.items()
            if name not in ("step", "training_step", "recorded_at") and "/atelier/" not in name
        }
        assert event.values == theirs
    steps: dict[int, Any] = {e.step: e.metrics for e in reader.events_of("step.finished")}  # type: ignore[union-attr]
    trained = [row for row in rows if "train/reward" in row]
    assert [row["step"] for row in trained] == [1, 2, 3, 4, 5]
    for row in trained:
        ours = steps[row["step"]]
        assert row["train/reward"] == pytest.approx(ours["reward/mean"], abs=1e-12)
        assert row["train/reward_std_dev"] == pytest.approx(ours["groups/std_mean"], abs=1e-12)
        unscored = ours["unscored"] / ours["trajectories"]
        assert row["train/exception_rate"] == pytest.approx(unscored)
        assert row["loss/train"] == ours["loss"]


def compare_trajectories(place: Project2048, reader: RunReader) -> None:
    """Compare ART's Parquet files, read by the importer, with the stored run."""
    source = open_source(place.folder / MODEL)
    lots = list(source.lots())
    assert len(lots) == 10
    for lot in lots:
        stored = reader.stored(lot.split, lot.step)
        theirs = [one for group in lot.groups for one in group]
        ours = [one for one in stored if one.problem is None]  # version 1 has no exceptions
        assert sorted(map(_facts, ours)) == sorted(map(_facts, theirs))
        assert all(one.branches for one in ours)
        if lot.split == "train":
            # without groups that have only exceptions
            numbers = sorted({one.group for one in ours})
            assert [[one.reward for one in group] for group in lot.groups] == [
                [one.reward for one in ours if one.group == number] for number in numbers
            ]


def _facts(one: Trajectory) -> str:
    messages = [(message.role, message.content) for message in one.messages]
    metrics = sorted(one.metrics.items())
    return json.dumps([one.scenario_id, one.reward, metrics, one.output, messages])


@pytest.mark.long
@pytest.mark.usefixtures("real_cache")
@pytest.mark.timeout(600)
def test_art_defaults_and_config_keys_match_the_package(tmp_path: Path) -> None:
    """Preset, arguments and config keys compared with the package itself."""
    script = ROOT / "tests" / "engine_http" / "art_defaults.py"
    names = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    completed = subprocess.run(
        [str(python_of("art")), str(script)], cwd=tmp_path, env=os.environ | names,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr[-4000:]
    theirs = json.loads(completed.stdout.splitlines()[-1])
    ours = Algorithm(preset="art")
    assert theirs["trainer"]["max_grad_norm"] == ours.max_grad_norm
    assert theirs["decays"] == [ours.weight_decay]
    assert (theirs["trainer"]["adam_beta1"], theirs["trainer"]["adam_beta2"]) == (0.9, 0.99)
    assert theirs["trainer"]["gradient_accumulation_steps"] == 1
    assert (theirs["peft"]["r"], theirs["peft"]["lora_alpha"]) == (RANK, ALPHA)
    sections = {"init_args", "engine_args", "peft_args", "trainer_args"}
    assert set(theirs["keys"][""]) - sections == set(KEYS[""])
    for section in ("init_args", "peft_args"):
        assert theirs["keys"][section] == sorted(KEYS[section])
    assert theirs["train"] == {field.name: field.default for field in fields(TrainArguments)}


def test_art_backend_imports_no_engine_libraries() -> None:
    code = (
        "import sys, engine.integrations.art;"
        "print(sorted({'apsw', 'starlette', 'torch'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
