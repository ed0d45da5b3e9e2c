"""The services themselves: what W&B's files, TensorBoard's files, trackio's database and an MLflow
server hold of a run is what is stored, value for value. Their environments take a minute."""

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
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE
from tests.engine_http.conftest import CACHE, ROOT, Engine, until
from tests.engine_http.test_tracking import WORKER, settled, trackers, write

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
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """trackio's database is there, and not among the person's own."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


def expected(run: RunSummary) -> Values:
    """(name, step) of everything that is stored, by our names and by ART's."""
    reader = RunReader(Path(run.path) / DATABASE)
    events = reader.events_of("step.finished", "validation.finished")
    reader.close()
    found: Values = {}
    for event in events:
        assert isinstance(event, (StepFinished, ValidationFinished))
        ours = event.metrics if isinstance(event, StepFinished) else validation(event)
        named = {**art_metrics(ours), **ours}
        found |= {(name, event.step): value for name, value in named.items()}
    assert len(found) > 100
    return found


def read(environment: str, script: str, *arguments: str) -> list[Any]:
    argv = [str(python_of(environment)), "-c", script, *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


def in_wandb(run: RunSummary) -> Values:
    rows = read("wandb", WANDB, run.path)
    assert len({row["_step"] for row in rows}) == len(rows)
    found: Values = {}
    for row in rows:
        for name, value in row.items():
            if not name.startswith("_") and name != AXIS:
                assert (name, row[AXIS]) not in found
                found[name, row[AXIS]] = value
    return found


def in_trackio(run: RunSummary) -> Values:
    rows = read("trackio", TRACKIO, run.project, run.name)
    found: Values = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("step", "timestamp"):
                assert (name, row["step"]) not in found
                found[name, row["step"]] = value
    return found


def in_tensorboard(run: RunSummary) -> Values:
    rows = read("tensorboard", TENSORBOARD, run.path)
    found = {(tag, step): value for tag, step, value, _ in rows}
    assert len(found) == len(rows)
    return found


def as_float32(values: Values) -> Values:
    """As precise as TensorBoard's scalars are."""
    return {k: struct.unpack("<f", struct.pack("<f", v))[0] for k, v in values.items()}


def test_files_and_databases_hold_what_is_stored(
    hub: None, own_engine: Engine, project: Path
) -> None:
    """Through a stop, a resumption and two kills of every process that tells them."""
    for name in ("wandb", "tensorboard", "trackio"):
        python_of(name)
    write(project, LOCAL)
    run = own_engine.train(project, **{"train.steps": 6})
    own_engine.wait_for(run, "step.finished")
    kill_workers(own_engine)
    own_engine.rest(own_engine.workspace)
    own_engine.call(lambda c: c.command(run.id, Command(action="resume")))
    until(lambda: own_engine.call(lambda c: c.run(run.id)).step >= 4, 60)
    kill_workers(own_engine)
    own_engine.wait(run)
    found = settled(own_engine, run, 90)
    assert [view.state for view in found.trackers] == ["in_step"] * 3, found
    wanted = expected(run)
    assert in_wandb(run) == wanted
    assert in_trackio(run) == wanted
    assert in_tensorboard(run) == as_float32(wanted)


def kill_workers(engine: Engine) -> None:
    until(lambda: len(engine.children(WORKER)) == 3)
    for child in engine.children(WORKER):
        child.kill()


@pytest.fixture(scope="module")
def mlflow_python(real_cache: None) -> Path:
    """Of an environment with MLflow's server, kept in the person's cache."""
    cache = Path(CACHE)
    home = cache / "atelier" / "tests" / MLFLOW.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", MLFLOW], check=True)
        (home / "ready").touch()
    return python


@contextlib.contextmanager
def serving(python: Path, folder: Path, port: int) -> Iterator[str]:
    """MLflow's own server over a database in this folder."""
    store = f"sqlite:///{folder}/mlflow.db"
    argv = [str(python), "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
    argv += ["--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
    family = psutil.Process(server.pid)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: is_up(url), 120)
        yield url
    finally:
        everyone = [family, *family.children(recursive=True)]
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait()
        psutil.wait_procs(everyone, timeout=10)


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


def test_an_mlflow_server_holds_what_is_stored(
    own_engine: Engine, project: Path, tmp_path: Path, mlflow_python: Path
) -> None:
    """Also what was trained while it was down: it dies after the second step and comes back."""
    python_of("mlflow")
    port = free_port()
    write(project, f'[track.mlflow]\non = true\nuri = "http://127.0.0.1:{port}"\n')
    with serving(mlflow_python, tmp_path, port):
        run = own_engine.train(project, **{"train.steps": 4})
        until(lambda: trackers(own_engine, run).trackers[0].url != "", 60)
    own_engine.wait(run)
    view = trackers(own_engine, run).trackers[0]
    assert view.state in ("failing", "unsent"), view
    assert view.behind > 0
    with serving(mlflow_python, tmp_path, port) as url:
        for _ in range(5):  # a server that has just begun may need longer than a feed's patience
            own_engine.call(lambda client: client.track(run.id))
            found = settled(own_engine, run, 120).trackers[0]
            if found.state == "in_step":
                break
        assert found.state == "in_step", found
        [about, *rows] = read("mlflow", MLFLOW_READER, url, "letters")
    held = {(name, step): value for name, step, value in rows}
    assert len(held) == len(rows)
    assert held == expected(run)
    assert (about["name"], about["status"]) == (run.name, "FINISHED")
    assert about["params"]["train.steps"] == "4"
