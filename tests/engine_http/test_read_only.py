"""Project on a read-only mount: reading works, writing is rejected."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine.protocol.records.runs import RunSummary
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine, until

MOUNT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


@pytest.fixture
def read_only_project(
    engine: Engine, workspace: Path, tiny_model: Path
) -> Iterator[tuple[Engine, Path, RunSummary]]:
    """(engine for which the project is read-only, the project, a run of it)."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a read-only mount needs root and unshare")
    project = make_project(workspace / "letters", tiny_model)
    (project / "rubric.md").write_text("More letters are better.\n")
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    until(lambda: engine.call(lambda client: client.info()).living_runs == 0)
    (workspace / "other").mkdir()
    before = ["unshare", "-m", "sh", "-c", MOUNT, "sh", str(project)]
    other = start_engine(workspace / "other", before)
    yield other, project, run
    stop_engine(other)


def test_read_only_project_is_readable_and_writes_are_rejected(
    read_only_project: tuple[Engine, Path, RunSummary],
) -> None:
    engine, project, run = read_only_project
    where, name = {"path": str(project)}, f"/runs/{run.id}"
    with httpx.Client(
        base_url=f"http://127.0.0.1:{engine.port}",
        headers={"Authorization": f"Bearer {engine.token}"},
        timeout=30,
        verify=False,
    ) as http:
        view = http.get("/project", params=where)
        assert view.json()["runs"][0]["state"] == "finished", view.text
        first = http.post(f"{name}/trajectories", json={}).json()["items"][0]
        word = {"kind": "flag", "trajectory_id": first["id"]}
        place = {key: first[key] for key in ("split", "step", "group")}
        label = {"id": "one", **place, "words": [word]}
        reads = [
            ("GET", "/scenarios", {**where, "split": "train"}, None),
            ("GET", "/rubric", where, None), ("GET", "/demonstrations", where, None),
            ("GET", "/forecast", where, None), ("GET", "/project/servers", where, None),
            ("GET", name, {}, None), ("GET", f"{name}/log", {}, None),
            ("GET", f"{name}/checkpoints", {}, None), ("GET", f"{name}/labels", {}, None),
            ("GET", f"{name}/agreement", {}, None), ("GET", f"{name}/trackers", {}, None),
            ("POST", f"{name}/trajectories", {}, {}), ("POST", f"{name}/scenarios", {}, {}),
        ]  # fmt: skip
        writes = [
            ("PUT", "/project", where, {"values": {"train.steps": 4}}),
            ("PUT", "/scenarios", {**where, "split": "train"}, {"items": [{"q": "x"}]}),
            ("PUT", "/rubric", where, {"source": "Other words."}),
            ("PUT", "/project/servers", where, {"name": "x", "server": {"command": "y"}}),
            ("POST", "/import", where, {"source": str(project / "scenarios" / "train.jsonl")}),
            ("POST", "/runs", {}, {"project": str(project)}),
            ("POST", "/evaluations", {}, {"project": str(project), "models": ["base"]}),
            ("POST", f"{name}/command", {}, {"action": "extend", "steps": 3}),
            ("POST", f"{name}/labels", {}, label),
            ("POST", f"{name}/labels/undo", {}, None),
            ("POST", f"{name}/checkpoints/1/pin", {}, {"pinned": True}),
            ("DELETE", name, {}, None),
        ]  # fmt: skip
        for method, path, params, body in reads:
            answer = http.request(method, path, params=params, json=body)
            assert answer.status_code in (200, 204), (method, path, answer.text)
        refused = 0
        for method, path, params, body in writes:
            answer = http.request(method, path, params=params, json=body)
            assert 400 <= answer.status_code < 500, (method, path, answer.status_code, answer.text)
            assert answer.json()["message"], (method, path)
            refused += answer.json()["code"] == "store.unwritable"
            print(f"{method} {path}: {answer.status_code} {answer.json()['code']}")
        assert refused >= 8
