"""Experiment tracking of a run: the tracker receives the stored data, whatever fails on the way."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.environments import python_of
from engine.protocol.config.tracking import TrackerList, TrackerName, TrackerState, sentence_of
from engine.protocol.events.run import LogWritten, RunFinished
from engine.protocol.problems import Refused
from engine.protocol.records.runs import RunSummary, Trajectory
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import DATABASE
from engine.trust.addresses import confirm_address
from tests.engine_http.conftest import AGENT, Engine, until
from tests.support.engine_starter import run_command
from tests.support.otlp_collector import Collector, run_collector

pytestmark = pytest.mark.usefixtures("real_cache")
WORKER = "engine.integrations.trackers.worker"
SECRET = "planted-0123456789"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_collector() as server:
        yield server


@pytest.fixture(scope="module")
def otel_python(real_cache: None) -> Path:
    """Python of the otel environment, installed here."""
    return python_of("otel")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache without any installed environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def to_otel(project: Path, collector: Collector, more: str = "") -> None:
    append_toml(project, f'[track.otel]\non = true\nendpoint = "{collector.url}"\n{more}')


def append_toml(project: Path, toml: str) -> None:
    file = project / "project.toml"
    file.write_text(f"{file.read_text()}\n{toml}")


def trackers(engine: Engine, run: RunSummary) -> TrackerList:
    return engine.call(lambda client: client.trackers(run.id))


def state_of(engine: Engine, run: RunSummary, name: TrackerName) -> TrackerState:
    views = {view.name: view for view in trackers(engine, run).trackers}
    return views[name].state


def wait_for_trackers(engine: Engine, run: RunSummary, timeout_s: float = 60) -> TrackerList:
    until(lambda: not trackers(engine, run).sending, timeout_s)
    return trackers(engine, run)


def stored_trajectories(run: RunSummary) -> list[Trajectory]:
    reader = RunReader(Path(run.path) / DATABASE)
    try:
        last = reader.last_step("train")
        steps = [reader.stored("train", step) for step in range(1, last + 1)]
        validations = [reader.stored("validation", step) for step in range(last + 1)]
        return [one for step in (*validations, *steps) for one in step]
    finally:
        reader.close()


def tracker_messages(run: RunSummary) -> list[str]:
    """Return messages about trackers in the run's log so far."""
    reader = RunReader(Path(run.path) / DATABASE)
    try:
        events = reader.events_of("log.written")
    finally:
        reader.close()
    return [e.text for e in events if isinstance(e, LogWritten) and e.source == "track"]


def wait_for_file(go: Path) -> str:
    """Return lines of an agent that runs training scenarios only after a file exists."""
    return f"""import asyncio, pathlib
    while scenario["id"] in ("s0", "s1", "s2", "s3") and not pathlib.Path({str(go)!r}).exists():
        await asyncio.sleep(0.05)
"""


def agent_spans(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [s for s in spans if s["attributes"]["gen_ai.operation.name"] == "invoke_agent"]


def test_every_rollout_becomes_a_trace(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    to_otel(project, collector)
    engine.call(lambda c: c.lend_tracker_keys({"otel": f"authorization=Bearer%20{SECRET}"}))
    run = engine.train(project)
    engine.wait_for(run, "step.finished")
    assert_secret_not_in_children(engine, SECRET)
    assert isinstance(engine.wait(run)[-1], RunFinished)
    assert wait_for_trackers(engine, run).trackers[0].state == "in_step"
    spans = collector.spans(otel_python)
    roots = agent_spans(spans)
    assert set(collector.paths) == {"/v1/traces"}
    assert {h["authorization"] for h in collector.headers} == {f"Bearer {SECRET}"}
    trajectories = {f"{run.id}/{one.id}": one for one in stored_trajectories(run)}
    ids = Counter(span["attributes"]["gen_ai.conversation.id"] for span in roots)
    assert ids == Counter(list(trajectories))
    for span in roots:
        attributes, one = (
            span["attributes"],
            trajectories[span["attributes"]["gen_ai.conversation.id"]],
        )
        assert attributes["atelier.reward"] == one.reward
        assert attributes.get("atelier.advantage") == one.advantage
        calls = [s for s in spans if s.get("parentSpanId") == span["spanId"]]
        assert len(calls) == one.turns
        assert sum(s["attributes"]["gen_ai.usage.output_tokens"] for s in calls) == (
            one.sampled_tokens
        )
        assert {s["traceId"] for s in calls} == {span["traceId"]}
        assert all(s["startTimeUnixNano"] >= span["startTimeUnixNano"] for s in calls)
        assert all(s["endTimeUnixNano"] <= span["endTimeUnixNano"] for s in calls)
    assert b"Say " not in b"".join(collector.bodies)  # no text of a scenario by default
    left = [file for file in project.rglob("*") if file.is_file()]
    assert not [file for file in left if SECRET.encode() in file.read_bytes()]


def test_content_is_sent_only_if_enabled(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    """Langfuse gets it at its own endpoint, with its own attribute names."""
    host = f'[track.langfuse]\non = true\ncontent = true\nhost = "{collector.url}"'
    append_toml(project, host)
    confirm_address("langfuse", collector.url)
    engine.call(lambda c: c.lend_tracker_keys({"langfuse": f"pk-lf-1:{SECRET}"}))
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    assert wait_for_trackers(engine, run).trackers[0].state == "in_step"
    spans = collector.spans(otel_python)
    assert set(collector.paths) == {"/api/public/otel/v1/traces"}
    coded = base64.b64encode(f"pk-lf-1:{SECRET}".encode()).decode()
    assert {h["authorization"] for h in collector.headers} == {f"Basic {coded}"}
    trajectories = {f"{run.id}/{one.id}": one for one in stored_trajectories(run)}
    for span in agent_spans(spans):
        attributes, one = (
            span["attributes"],
            trajectories[span["attributes"]["gen_ai.conversation.id"]],
        )
        assert json.loads(attributes["gen_ai.input.messages"]) == [
            {"role": "user", "parts": [{"type": "text", "content": one.messages[0].content}]}
        ]
        reply = json.loads(attributes["gen_ai.output.messages"])[0]
        assert (reply["role"], reply["finish_reason"]) == ("assistant", "stop")
        assert attributes["langfuse.session.id"] == run.id
        assert attributes["langfuse.trace.metadata.reward"] == one.reward


def test_unresponsive_collector_does_not_affect_the_run(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    collector.mood = "silence"
    to_otel(project, collector)
    run = engine.train(project)
    until(lambda: collector.asked > 0, 90)
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    assert state_of(engine, run, "otel") != "in_step"
    collector.mood = 200
    collector.over.set()
    engine.call(lambda client: client.track(run.id))
    assert wait_for_trackers(engine, run).trackers[0].state == "in_step"
    trace_ids = {s["traceId"] for s in agent_spans(collector.spans(otel_python))}
    assert len(trace_ids) == len(stored_trajectories(run))


def test_unavailable_collector_gets_everything_later(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    """Training scenarios wait until the outage was logged.

    Earlier validation data is there to be sent.
    """
    collector.mood = 503
    to_otel(project, collector)
    go = project / "go"
    (project / "agent.py").write_text(
        AGENT.replace("reply = await", f"{wait_for_file(go)}    reply = await")
    )
    run = engine.train(project, **{"agent.timeout_s": 120})
    until(lambda: bool(tracker_messages(run)), 90)
    go.touch()
    events = engine.wait(run)
    messages = [e.text for e in events if isinstance(e, LogWritten) and e.source == "track"]
    assert messages == ["OpenTelemetry returned HTTP 503 Service Unavailable. The run continues."]
    view = trackers(engine, run).trackers[0]
    assert (view.state, view.behind > 0) == ("failing", True)
    collector.mood = 200
    assert wait_for_trackers(engine, run).trackers[0].state == "in_step"
    assert len(agent_spans(collector.spans(otel_python))) == len(stored_trajectories(run))


def test_rejected_span_is_counted_and_others_are_sent(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    collector.spoilt = b"/t00001-000-000"  # in the root span of the first trajectory
    to_otel(project, collector)
    run = engine.train(project)
    events = engine.wait(run)
    view = wait_for_trackers(engine, run).trackers[0]
    assert (view.state, view.behind, view.refused) == ("in_step", 0, 1)
    assert sentence_of(view) == (
        "OpenTelemetry: up to date; 1 span rejected: it returned HTTP 400 Bad Request."
    )
    assert len(agent_spans(collector.spans(otel_python))) == len(stored_trajectories(run)) - 1
    messages = [e.text for e in events if isinstance(e, LogWritten) and e.source == "track"]
    assert messages in (
        [],  # the run had ended before
        ["OpenTelemetry returned HTTP 400 Bad Request. The rest is uploaded. The run continues."],
    )


def test_killed_tracker_process_is_restarted(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    to_otel(project, collector)
    run = engine.train(project, **{"train.steps": 6})
    engine.wait_for(run, "step.finished")
    until(lambda: bool(engine.child_processes(WORKER)))
    for child in engine.child_processes(WORKER):
        child.kill()
    assert isinstance(engine.wait(run)[-1], RunFinished)
    assert wait_for_trackers(engine, run).trackers[0].state == "in_step"
    trace_ids = {s["traceId"] for s in agent_spans(collector.spans(otel_python))}
    assert len(trace_ids) == len(stored_trajectories(run))
    until(lambda: not engine.child_processes(WORKER))


def test_track_command_sends_an_untracked_run_once(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    assert trackers(engine, run).trackers == []
    with pytest.raises(Refused, match="No tracker is enabled"):
        engine.call(lambda client: client.track(run.id))
    to_otel(project, collector)
    for _ in range(2):
        done = run_command("track", run.path, "--workspace", str(engine.workspace))
        assert (done.returncode, done.stdout) == (0, "  OpenTelemetry: up to date\n"), done.stderr
        assert len(agent_spans(collector.spans(otel_python))) == len(
            stored_trajectories(run)
        )  # not twice


def test_wrong_key_is_reported_and_can_be_replaced(
    engine: Engine, project: Path, collector: Collector, otel_python: Path
) -> None:
    collector.wrong_key, collector.reply = SECRET, f"no such key {SECRET}".encode()
    to_otel(project, collector)
    engine.call(lambda c: c.lend_tracker_keys({"otel": f"x-key={SECRET}"}))
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    until(lambda: trackers(engine, run).trackers[0].problem is not None)
    problem = trackers(engine, run).trackers[0].problem
    assert problem is not None
    assert problem.message == "OpenTelemetry rejected the key (HTTP 401)."
    assert SECRET not in problem.model_dump_json()
    engine.call(lambda c: c.lend_tracker_keys({"otel": "x-key=another"}))
    collector.reply = b""
    assert wait_for_trackers(engine, run).trackers[0].state == "in_step"
    assert {h["x-key"] for h in collector.headers} == {"another"}
    logs = [file.read_text() for file in (Path(run.path) / "logs").iterdir()]
    assert SECRET not in "".join(logs)


def test_missing_tracker_environment_is_reported_once(
    empty_cache: None, own_engine: Engine, project: Path, collector: Collector
) -> None:
    to_otel(project, collector)
    run = own_engine.train(project, **{"train.steps": 1})
    events = own_engine.wait(run)
    assert isinstance(events[-1], RunFinished)
    messages = [e.text for e in events if isinstance(e, LogWritten) and e.source == "track"]
    assert messages == [
        "Nothing is sent to OpenTelemetry: the environment otel is not installed. Install it under "
        "Settings → Engines or with `atelier environments install otel`; unsent data "
        "is then uploaded. The run continues."
    ]
    assert trackers(own_engine, run).trackers[0].state == "missing"
    assert collector.asked == 0


def assert_secret_not_in_children(engine: Engine, secret: str) -> None:
    for process in engine.child_processes(""):
        assert secret not in " ".join(process.cmdline())
        assert secret not in "".join(process.environ().values())
