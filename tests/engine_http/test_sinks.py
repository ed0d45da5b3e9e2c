"""Tracker processes, each with its real client, and a service that rejects some data."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.environments import python_of
from engine.integrations.trackers.sinks.mlflow_names import named
from engine.integrations.trackers.traces import TraceContext
from engine.protocol.records.judging import Verdict
from engine.runtime.child import Child
from tests.engine.integrations.trackers.test_metrics import spec
from tests.engine.integrations.trackers.test_traces import TWO_TURNS
from tests.engine_http.conftest import ROOT
from tests.engine_http.test_trackers import free_port, mlflow_python, mlflow_server
from tests.support.otlp_collector import Collector, run_collector

pytestmark = pytest.mark.usefixtures("real_cache")
__all__ = ["mlflow_python"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_collector() as server:
        yield server


@pytest.fixture(scope="module")
def otel_python(real_cache: None) -> Path:
    return python_of("otel")


def send_items(
    name: str, python: Path, folder: Path, settings: dict[str, Any], *lots: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the responses of a tracker process to each lot of items."""
    about = {
        "id": "01J", "name": "amber-kestrel", "kind": "training", "project": "inbox",
        "started_at": 1.0, "folder": str(folder), "version": "1.0", "settings": {"train.lr": 0.5},
    }  # fmt: skip

    async def work() -> list[dict[str, Any]]:
        argv = [str(python), "-m", "engine.integrations.trackers.worker", name]
        child = await Child.spawn(name, argv, cwd=ROOT, log=folder / "log")
        try:
            await child.ask("open", settings=settings, key="", run=about)
            answers = [await child.ask("send", items=lot) for lot in lots]
            await child.ask("close", state="finished")
            return answers
        finally:
            await child.kill()

    return asyncio.run(work())


def trajectory_item(index: int, words: str = "Find it.") -> dict[str, Any]:
    """Return the item that a feed sends for a trajectory."""
    question = TWO_TURNS.messages[0].model_copy(update={"content": words})
    one = TWO_TURNS.model_copy(
        update={"id": f"t-{index}", "messages": [question, *TWO_TURNS.messages[1:]]}
    )
    verdict = Verdict(trajectory_id=one.id, judge="x", rubric="r", score=0.5)
    return {
        "seq": index,
        "at": 9.0,
        "spans": TraceContext(spec(), True).spans(one, [verdict], 110.0),
    }


def test_too_large_requests_are_split(
    collector: Collector, otel_python: Path, tmp_path: Path
) -> None:
    collector.most_bytes = 5000
    items = [trajectory_item(1), trajectory_item(2, "long " * 600), trajectory_item(3)]
    [answer] = send_items("otel", otel_python, tmp_path, {"endpoint": collector.url}, items)
    assert answer["refused"] == 0
    sent = {span["span_id"] for item in items for span in item["spans"]}
    assert len(collector.spans(otel_python)) == len(sent) == 9
    assert collector.asked > 3


def test_rejected_item_is_counted_and_others_are_sent(
    collector: Collector, otel_python: Path, tmp_path: Path
) -> None:
    collector.spoilt = b"chat 0 0 of nobody"
    items = [trajectory_item(1), trajectory_item(2), trajectory_item(3)]
    items[1]["spans"][1]["name"] = "chat 0 0 of nobody"
    [answer] = send_items("otel", otel_python, tmp_path, {"endpoint": collector.url}, items)
    assert (answer["refused"], answer["words"]) == (1, "returned HTTP 400 Bad Request.")
    assert len(collector.spans(otel_python)) == 8


def test_partially_accepted_items_are_not_sent_again(
    collector: Collector, otel_python: Path, tmp_path: Path
) -> None:
    collector.reply = b"\x0a\x0b\x08\x02\x12\x07too old"  # ExportTracePartialSuccess
    lots = ([trajectory_item(1)], [trajectory_item(2)])
    answers = send_items("otel", otel_python, tmp_path, {"endpoint": collector.url}, *lots)
    words = "rejected 2 of 3 spans: too old."
    assert [(one["refused"], one["words"]) for one in answers] == [(2, words)] * 2
    assert collector.asked == 2


TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1] + "/tensorboard", size_guidance={"scalars": 0})
read.Reload()
print(json.dumps([[one.step, one.value, one.wall_time] for one in read.Scalars("reward")]))
"""


@pytest.mark.long
def test_tensorboard_keeps_both_validations_of_a_step(real_cache: None, tmp_path: Path) -> None:
    python = python_of("tensorboard")
    first = {"seq": 1, "at": 10.5, "step": 3, "values": {"reward": 0.25}}
    second = {"seq": 2, "at": 11.25, "step": 3, "values": {"reward": 0.5}}
    send_items("tensorboard", python, tmp_path, {}, [first], [first, second])
    send_items("tensorboard", python, tmp_path, {}, [first, second])
    argv = [str(python), "-c", TENSORBOARD, str(tmp_path)]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == [[3, 0.25, 10.5], [3, 0.5, 11.25]]


HALF_MADE = """
import sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
place = client.create_experiment("inbox")
client.create_run(place, tags={"atelier.run_id": "01J"}, run_name="amber-kestrel")
"""
MLFLOW = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
place = client.get_experiment_by_name("inbox").experiment_id
[run] = client.search_runs([place])
print(json.dumps([run.data.params, run.data.metrics]))
"""


@pytest.mark.long
def test_mlflow_accepts_special_names_and_completes_partial_run(
    tmp_path: Path, mlflow_python: Path
) -> None:
    python = python_of("mlflow")
    row = {"seq": 1, "at": 10.5, "step": 3, "values": {"reward/part/pass@1": 0.25, "loss": 1.5}}
    with mlflow_server(mlflow_python, tmp_path, free_port()) as url:
        subprocess.run([str(python), "-c", HALF_MADE, url], check=True)
        settings = {"uri": url, "experiment": ""}
        for _ in range(2):  # the second time, everything is there already
            send_items("mlflow", python, tmp_path, settings, [row])
        argv = [str(python), "-c", MLFLOW, url]
        output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    params, metrics = json.loads(output.splitlines()[-1])
    assert params == {"train.lr": "0.5"}
    assert metrics == {named("reward/part/pass@1"): 0.25, "loss": 1.5}
