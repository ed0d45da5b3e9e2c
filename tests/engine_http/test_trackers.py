"""Tracker services: files of W&B and TensorBoard, trackio's database and an MLflow server contain
the stored values of a run. Their environments take a minute to install."""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.environments import python_of
from engine.integrations.trackers.metrics import validation
from engine.protocol.events.run import StepFinished, ValidationFinished
from engine.protocol.records.art_names import art_metrics
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command
from engine.runtime.locks import released, take_lock
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE
from tests.engine_http.conftest import CACHE, ROOT, Engine, until
from tests.engine_http.test_tracking import WORKER, append_toml, trackers, wait_for_trackers

pytestmark = [pytest.mark.usefixtures("real_cache"), pytest.mark.long]
MLFLOW = "mlflow==3.17.2"
AXIS = "training_step"
LOCAL = """
[track.wandb]
on = true
mode = "offline"
[track.tensorboard]
on = true
[track.trackio]
on = true
"""
WANDB = """
import json, sys
from pathlib import Path
from engine.integrations.trackers.sinks.wandb_file import history
for file in sorted(Path(sys.argv[1]).glob("wandb/offline-run-*/run-*.wandb")):
    for row in history(file):
        print(json.dumps(row))
"""
TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1] + "/tensorboard", size_guidance={"scalars": 0})
read.Reload()
for tag in read.Tags()["scalars"]:
    for one in read.Scalars(tag):
        print(json.dumps([tag, one.step, one.value, one.wall_time]))
"""
TRACKIO = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
for row in SQLiteStorage.get_logs(sys.argv[1], sys.argv[2]):
    print(json.dumps(row))
"""

Values = dict[tuple[str, int], float]


@pytest.fixture
def trackio_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put trackio's database in a temporary folder."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


def expected_values(run: RunSummary) -> Values:
    """Return every stored metric by (name, step), under Atelier's names and ART's."""
    reader = RunReader(Path(run.path) / DATABASE)
    events = reader.events_of("step.finished", "validation.finished")
    reader.close()
    values: Values = {}
    for event in events:
        assert isinstance(event, (StepFinished, ValidationFinished))
        ours = event.metrics if isinstance(event, StepFinished) else validation(event)
        both = {**art_metrics(ours), **ours}
        values |= {(name, event.step): value for name, value in both.items()}
    assert len(values) > 100
    return values


def read_lines(environment: str, script: str, *arguments: str) -> list[Any]:
    argv = [str(python_of(environment)), "-c", script, *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


def wandb_values(run: RunSummary) -> Values:
    rows = read_lines("wandb", WANDB, run.path)
    assert len({row["_step"] for row in rows}) == len(rows)
    values: Values = {}
    for row in rows:
        for name, value in row.items():
            if not name.startswith("_") and name != AXIS:
                assert (name, row[AXIS]) not in values
                values[name, row[AXIS]] = value
    return values


def trackio_values(run: RunSummary) -> Values:
    rows = read_lines("trackio", TRACKIO, run.project, run.name)
    values: Values = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("step", "timestamp"):
                assert (name, row["step"]) not in values
                values[name, row["step"]] = value
    return values


def tensorboard_values(run: RunSummary) -> Values:
    rows = read_lines("tensorboard", TENSORBOARD, run.path)
    values = {(tag, step): value for tag, step, value, _ in rows}
    assert len(values) == len(rows)
    return values


def as_float32(values: Values) -> Values:
    """Round to the precision of TensorBoard's scalars."""
    return {k: struct.unpack("<f", struct.pack("<f", v))[0] for k, v in values.items()}


def test_wandb_trackio_and_tensorboard_contain_stored_values(
    trackio_home: None, own_engine: Engine, project: Path
) -> None:
    """Stop and resume the run, and kill every tracker process twice."""
    for name in ("wandb", "tensorboard", "trackio"):
        python_of(name)
    append_toml(project, LOCAL)
    run = own_engine.train(project, **{"train.steps": 6})
    own_engine.wait_for(run, "step.finished")
    kill_workers(own_engine)
    own_engine.stop_runs(own_engine.workspace)
    own_engine.call(lambda c: c.command(run.id, Command(action="resume")))
    until(lambda: own_engine.call(lambda c: c.run(run.id)).step >= 4, 60)
    kill_workers(own_engine)
    own_engine.wait(run)
    listing = wait_for_trackers(own_engine, run, 90)
    assert [view.state for view in listing.trackers] == ["in_step"] * 3, listing
    values = expected_values(run)
    assert wandb_values(run) == values
    assert trackio_values(run) == values
    assert tensorboard_values(run) == as_float32(values)


def kill_workers(engine: Engine) -> None:
    until(lambda: len(engine.child_processes(WORKER)) == 3)
    for child in engine.child_processes(WORKER):
        child.kill()


@pytest.fixture(scope="module")
def mlflow_python(real_cache: None) -> Path:
    """Python of an environment with an MLflow server, in the user's cache."""
    cache = Path(CACHE)
    home = cache / "atelier" / "tests" / MLFLOW.replace("==", "-")
    python = home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    with released(take_lock(home.with_suffix(".lock"), wait_s=None)):  # several workers make it
        if not (home / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", MLFLOW], check=True)
            (home / "ready").touch()
    return python


@contextlib.contextmanager
def mlflow_server(python: Path, folder: Path, port: int) -> Iterator[str]:
    """MLflow server over a database in this folder."""
    store = f"sqlite:///{folder}/mlflow.db"
    argv = [str(python), "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
    argv += ["--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
    server_process = psutil.Process(server.pid)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: is_up(url), 120)
        yield url
    finally:
        processes = [server_process, *server_process.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait()
        psutil.wait_procs(processes, timeout=10)


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


MLFLOW_READER = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
place = client.get_experiment_by_name(sys.argv[2]).experiment_id
for run in client.search_runs([place]):
    about = {"name": run.info.run_name, "status": run.info.status}
    print(json.dumps({**about, "params": run.data.params}))
    for name in run.data.metrics:
        for one in client.get_metric_history(run.info.run_id, name):
            print(json.dumps([name, one.step, one.value]))
"""


def test_mlflow_server_contains_stored_values(
    own_engine: Engine, project: Path, tmp_path: Path, mlflow_python: Path
) -> None:
    """Includes steps trained while it was down: it stops after the second step and comes back."""
    python_of("mlflow")
    port = free_port()
    append_toml(project, f'[track.mlflow]\non = true\nuri = "http://127.0.0.1:{port}"\n')
    with mlflow_server(mlflow_python, tmp_path, port):
        run = own_engine.train(project, **{"train.steps": 4})
        until(lambda: trackers(own_engine, run).trackers[0].url != "", 60)
    own_engine.wait(run)
    view = trackers(own_engine, run).trackers[0]
    assert view.state in ("failing", "unsent"), view
    assert view.behind > 0
    with mlflow_server(mlflow_python, tmp_path, port) as url:
        for _ in range(5):  # a new server may need longer than a feed's timeout
            own_engine.call(lambda client: client.track(run.id))
            current = wait_for_trackers(own_engine, run, 120).trackers[0]
            if current.state == "in_step":
                break
        assert current.state == "in_step", current
        [about, *rows] = read_lines("mlflow", MLFLOW_READER, url, "letters")
    stored_values = {(name, step): value for name, step, value in rows}
    assert len(stored_values) == len(rows)
    assert stored_values == expected_values(run)
    assert (about["name"], about["status"]) == (run.name, "FINISHED")
    assert about["params"]["train.steps"] == "4"
