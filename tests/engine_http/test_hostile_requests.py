"""Requests with values out of range, and projects whose files are pipes, links or folders."""

import concurrent.futures
import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from engine.protocol.requests.runs import Command
from engine.storage.run_folder.run import DATABASE, SPEC
from tests.engine.storage.run_db.test_repair import RUN, make
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine, until
from tests.engine_http.test_hostile_folders import MOST_S, SECRET, add_pipe, clear_path

HUGE = 10**30
LONG = "x" * 5000
ODD = ["\x00", "../../../etc/passwd", "/dev/zero", "/proc/self/mem", LONG, "~nobody-here", "%00"]
MANY_WORDS = " ".join(f"w{number}" for number in range(60_000))


def send_request(
    engine: Engine, method: str, route: str, body: Any = None, **params: Any
) -> httpx.Response:
    url = f"http://127.0.0.1:{engine.port}{route}"
    headers = {"Authorization": f"Bearer {engine.token}"}
    return httpx.request(
        method, url, headers=headers, json=body, params=params, timeout=30, verify=False
    )


Asked = tuple[str, str, Any, dict[str, Any]]


def odd_requests(project: str) -> list[Asked]:
    run = f"/runs/{RUN}"
    requests: list[Asked] = [
        ("GET", "/scenarios", None, {"path": project}),
        ("GET", "/scenarios", None, {"path": project, "split": "x"}),
        ("GET", "/scenarios", None, {"path": project, "split": "train", "offset": "x"}),
        ("GET", "/scenarios", None, {"path": project, "split": "train", "limit": "9" * 5000}),
        ("PUT", "/scenarios", {"items": []}, {"path": project}),
        ("GET", f"{run}/events", None, {"after": "x"}),
        ("GET", f"{run}/events", None, {"after": HUGE}),
        ("GET", f"{run}/changes", None, {"after": "nan"}),
        ("GET", f"{run}/groups/train/{HUGE}/0", None, {}),
        ("GET", f"{run}/groups/nope/1/0", None, {}),
        ("GET", f"{run}/trajectories/%00", None, {}),
        ("GET", f"{run}/trajectories/%ED%A0%80", None, {}),
        ("GET", f"{run}/file", None, {}),
        ("GET", f"{run}/file", None, {"path": "run.json", "offset": "x"}),
        ("GET", f"{run}/file", None, {"path": "run.json", "offset": -1}),
        ("GET", f"{run}/file", None, {"path": "run.json", "offset": HUGE}),
        ("GET", f"{run}/file", None, {"path": "../../project.toml"}),
        ("GET", "/home-requests", None, {"wait": "x"}),
        ("GET", "/home-requests", None, {"wait": "nan"}),
        ("GET", "/hosts", None, {"after": "x"}),
        ("GET", "/hosts", None, {"after": "9" * 5000}),
        ("GET", "/hosts", None, {"wait": "nan"}),
        ("GET", "/sync/contents/..", None, {}),
        ("PUT", "/sync/contents/" + "0" * 64, None, {}),
        ("PUT", "/sync/contents/" + "0" * 64, None, {"offset": "x", "bytes": -1}),
        ("POST", f"{run}/checkpoints/{HUGE}/pin", {"pinned": True}, {}),
        ("DELETE", f"{run}/checkpoints/{HUGE}", None, {}),
        ("POST", f"{run}/checkpoints/{HUGE}/export", {"format": "adapter", "out": "\x00"}, {}),
        ("POST", f"{run}/trajectories", {"search": MANY_WORDS}, {}),
        ("POST", f"{run}/trajectories", {"search": "x" * 900_000}, {}),
        ("POST", f"{run}/trajectories", {"search": '\x00" * NEAR(a b) ^ : -'}, {}),
        ("POST", f"{run}/trajectories", {"scenario_id": "\x00"}, {}),
        ("POST", f"{run}/scenarios", {"split": "train", "search": MANY_WORDS}, {}),
        ("GET", "/forecast", None, {"path": project, "values": "[" * 20_000}),
        ("GET", "/forecast", None, {"path": project, "values": '{"train.steps": 1e999}'}),
        ("POST", "/environments/..", {"action": "verify"}, {}),
        ("POST", f"{run}/demonstrations", {"keep": "all", "file": "\x00"}, {}),
        ("POST", f"{run}/demonstrations", {"keep": "above:" + "9" * 5000}, {}),
        ("POST", f"{run}/command", {"action": "extend", "steps": HUGE}, {}),
    ]
    for key in ("step", "step_to", "group", "offset"):
        for value in (HUGE, -HUGE, 2**63):
            body = {"step": 1, key: value}
            requests += [
                ("POST", f"{run}/{route}", body, {}) for route in ("trajectories", "groups")
            ]
    for odd in ODD:
        for route in ("/project", "/project/files", "/rubric", "/demonstrations", "/arena"):
            requests.append(("GET", route, None, {"path": odd}))
        for route in ("/forecast", "/project/packages", "/project/servers"):
            requests.append(("GET", route, None, {"path": odd}))
        requests += [
            ("GET", "/runs", None, {"project": odd}),
            ("GET", f"/runs/{quote(odd, safe='')[:900]}", None, {}),
            ("PUT", "/project", {"toml": ""}, {"path": odd}),
            ("POST", "/import", {"source": odd}, {"path": project}),
            ("POST", "/runs", {"project": odd}, {}),
            ("POST", "/runs", {"project": project, "origin": odd}, {}),
            ("POST", "/runs", {"project": project, "origin": f"{RUN}@{odd}"}, {}),
            (
                "POST",
                "/evaluations",
                {"project": project, "models": ["base"], "scenarios": odd},
                {},
            ),
            ("POST", "/evaluations", {"project": project, "models": [odd]}, {}),
            ("POST", "/arena", {"project": odd, "models": ["base"], "messages": []}, {}),
            ("POST", "/confirmations", {"confirmation": {"kind": "project", "project": odd}}, {}),
            ("POST", "/drafts/tools", {"folder": odd, "servers": odd}, {}),
            ("PUT", "/scenarios", {"items": []}, {"path": odd, "split": "train"}),
            ("GET", f"/runs/{RUN}/file", None, {"path": odd}),
            ("GET", f"/runs/{RUN}/files", None, {"below": odd}),
            ("GET", f"/runs/{RUN}/calls/x", None, {"key": odd}),
        ]
    return requests


def test_out_of_range_values_are_rejected(
    workspace: Path, tiny_model: Path, tmp_path: Path
) -> None:
    project = make_project(workspace / "mine", tiny_model)
    make(project / "runs" / RUN, 60)
    before = sorted(tmp_path.rglob("*"))
    with (tmp_path / "stderr").open("wb") as stderr:
        engine = start_engine(workspace, stderr=stderr)
    faults = []
    try:
        for method, route, body, params in odd_requests(str(project)):
            started_at = engine.cpu_s()
            what = f"{method} {route[:60]} {str(body)[:60]} {str(params)[:60]}"
            try:
                if route.endswith("/events"):
                    with contextlib.suppress(httpx.ReadTimeout):
                        url = f"http://127.0.0.1:{engine.port}{route}"
                        headers = {"Authorization": f"Bearer {engine.token}"}
                        options = {
                            "headers": headers,
                            "params": params,
                            "timeout": 0.5,
                            "verify": False,
                        }
                        with httpx.stream(method, url, **options) as answer:  # type: ignore[arg-type]
                            status = answer.status_code
                else:
                    status = send_request(engine, method, route, body, **params).status_code
            except httpx.TransportError as error:
                faults.append(f"{what}: {type(error).__name__}")
                continue
            if status >= 500 or engine.cpu_s() - started_at > MOST_S:
                faults.append(f"{what}: {status} in {engine.cpu_s() - started_at:.1f} s")
    finally:
        stop_engine(engine)
    printed = (tmp_path / "stderr").read_text(errors="replace")
    assert not faults, "\n".join(faults)
    assert "Traceback" not in printed
    new = {str(one.relative_to(tmp_path)) for one in set(tmp_path.rglob("*")) - set(before)}
    new = {one for one in new if not one.startswith("workspace/.atelier")}
    assert new <= {
        "stderr",
        *(f"workspace/mine/runs/{RUN}/{DATABASE}{s}" for s in ("-wal", "-shm")),
    }


Damage = Callable[[Path, Path], object]


def as_link(name: str) -> Damage:
    return lambda project, outside: clear_path(project, name).symlink_to(outside / "file")


def parent_as_link(name: str, file: str) -> Damage:
    """Make a folder of the project a link to somebody else's."""

    def damage(project: Path, outside: Path) -> None:
        clear_path(project, name).symlink_to(outside)

    return damage


def as_folder(name: str) -> Damage:
    return lambda project, outside: (clear_path(project, name) / "x").mkdir(parents=True)


NAMES = (
    "rubric.md", "rubric.versions.jsonl", "mcp.json", "agent.py", "requirements.txt", "gold.jsonl",
    "scenarios/train.jsonl", ".atelierignore", "runs", "servers.py", "sft.jsonl",
)  # fmt: skip
SPOILT: dict[str, Damage] = {
    **{f"{name} is a pipe": add_pipe(name) for name in NAMES},
    **{f"{name} is a link": as_link(name) for name in NAMES},
    **{f"{name} is a folder": as_folder(name) for name in NAMES if name != "runs"},
    "data is a link": parent_as_link("data", "sft.jsonl"),
    "project.toml is a link": as_link("project.toml"),
}


def project_requests(project: str) -> list[Asked]:
    path = {"path": project}
    return [
        ("GET", "/project", None, path),
        ("GET", "/project/files", None, path),
        ("GET", "/rubric", None, path),
        ("PUT", "/rubric", {"source": "More letters are better.", "who": "x"}, path),
        ("GET", "/scenarios", None, {**path, "split": "train"}),
        ("PUT", "/scenarios", {"items": [{"q": "x"}]}, {**path, "split": "train"}),
        ("GET", "/demonstrations", None, path),
        ("GET", "/forecast", None, path),
        ("GET", "/arena", None, path),
        ("GET", "/project/packages", None, path),
        ("GET", "/project/servers", None, path),
        ("PUT", "/project/servers", {"name": "x", "server": {"command": "true"}}, path),
        ("POST", f"/runs/{RUN}/demonstrations", {"keep": "all", "file": "data/x.jsonl"}, {}),
        ("POST", f"/runs/{RUN}/demonstrations", {"keep": "all", "file": "sft.jsonl"}, {}),
        ("GET", f"/runs/{RUN}/files", None, {}),
        ("GET", "/projects", None, {}),
    ]


@pytest.mark.parametrize("what", SPOILT)
def test_project_with_pipes_and_links_is_read_without_hanging(
    shared_engine: Engine, home: Path, tiny_model: Path, tmp_path: Path, what: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(SECRET)
    name = f"p{list(SPOILT).index(what)}"
    project = make_project(home / name, tiny_model, toml='\n[sft]\ndata = "sft.jsonl"\n')
    make(project / "runs" / RUN, 20)
    SPOILT[what](project, outside)
    faults = []
    for method, route, body, params in project_requests(str(project)):
        started_at = shared_engine.cpu_s()
        try:
            answer = send_request(shared_engine, method, route, body, **params)
        except httpx.TimeoutException:
            faults.append(f"{method} {route} hangs")
            continue
        if answer.status_code >= 500 or shared_engine.cpu_s() - started_at > MOST_S:
            faults.append(f"{method} {route}: {answer.status_code}")
        if SECRET[:30].decode() in answer.text and "project.toml" not in what:
            faults.append(f"{method} {route} shows a file from outside")
    left = {one.name: one.read_bytes() for one in outside.iterdir()}
    project.rename(tmp_path / "away")
    assert not faults
    assert left == {"file": SECRET}


def test_unread_streams_and_large_searches_do_not_block_others(
    engine: Engine, workspace: Path, tiny_model: Path
) -> None:
    """Slow readers of a long history and searches of maximum size, next to an honest client."""
    project = make_project(workspace / "mine", tiny_model)
    make(project / "runs" / RUN, 400)
    engine.call(lambda client: client.project(str(project)))
    headers = {"Authorization": f"Bearer {engine.token}"}
    url = f"http://127.0.0.1:{engine.port}/runs/{RUN}"
    with contextlib.ExitStack() as streams, concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            streams.enter_context(
                httpx.stream("GET", f"{url}/events", headers=headers, timeout=60, verify=False)
            )
        body = {"search": MANY_WORDS}
        searches = [
            pool.submit(send_request, engine, "POST", f"/runs/{RUN}/trajectories", body)
            for _ in "x" * 8
        ]
        slowest = 0.0
        while not all(one.done() for one in searches):
            started_at = time.monotonic()
            assert send_request(engine, "GET", "/engine").status_code == 200
            slowest = max(slowest, time.monotonic() - started_at)
        assert all(one.result().status_code < 500 for one in searches)
    print(f"slowest response meanwhile: {slowest:.2f} s")
    assert slowest < MOST_S
    assert (project / "runs" / RUN / SPEC).is_file()


def test_extending_run_without_base_model_fails_with_problem(
    engine: Engine, workspace: Path, tiny_model: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    project = make_project(workspace / "mine", model)
    run = engine.train(project, **{"train.steps": 1})
    engine.wait(run)
    until(lambda: engine.call(lambda client: client.info()).living_runs == 0)
    shutil.rmtree(model)
    engine.call(lambda client: client.command(run.id, Command(action="extend", steps=2)))
    until(lambda: engine.call(lambda client: client.info()).living_runs == 0)
    ended = engine.call(lambda client: client.run(run.id))
    assert ended.state == "failed"
    assert ended.problem is not None
    assert ended.problem.code.startswith("model.")
