"""Run folders made to harm their readers, through every route of a real engine that reads them.

Each is a readable run with one thing that no engine writes: links to other places, pipes, folders
instead of files, a database that never answers, numbers out of range, compressed rows that expand.
"""

import contextlib
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import httpx
import psutil
import pytest

from engine.runtime.ids import ulid
from engine.storage.run_folder.run import DATABASE, SPEC
from tests.engine.storage.run_db.test_repair import make
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine

MOVES = 60
MOST_S = 3.0
"""Maximum CPU seconds of the engine for one response."""
"""Longest answer; a machine under load takes some of it."""
MOST_MEMORY = 780 * 2**20
"""Maximum growth of the engine's memory; it is forked with torch loaded."""
SECRET = b"what is written here is nobody's business\n" * 8


def run_sql(*statements: str) -> Callable[[Path, Path], None]:
    def damage(run: Path, outside: Path) -> None:
        db = apsw.Connection(str(run / DATABASE))
        for statement in statements:
            db.execute(statement)
        db.close()

    return damage


def add_link(name: str, to: str) -> Callable[[Path, Path], None]:
    """Add a link in the run to something outside of it."""

    def damage(run: Path, outside: Path) -> None:
        clear_path(run, name).symlink_to(outside / to)

    return damage


def clear_path(run: Path, name: str) -> Path:
    """Remove what is at a path of the run, and return the path."""
    file = run / name
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def add_pipe(name: str) -> Callable[[Path, Path], None]:
    return lambda run, outside: os.mkfifo(clear_path(run, name))


def add_folder(name: str) -> Callable[[Path, Path], None]:
    return lambda run, outside: (clear_path(run, name) / "full").mkdir(parents=True)


def add_checkpoint(run: Path, files: dict[str, dict[str, object]], path: str = "") -> None:
    """Record a checkpoint with this manifest."""
    path = path or "checkpoints/step-000001"
    record = {"step": 1, "path": path, "bytes": 1, "at": 1.0}
    db = apsw.Connection(str(run / DATABASE))
    db.execute("DELETE FROM checkpoints")
    for step in (1, 2):  # the newest is never deleted
        values = (step, json.dumps({**record, "step": step}))
        db.execute("INSERT INTO checkpoints(step, record) VALUES (?, ?)", values)
    db.close()
    step_folder = run / "checkpoints" / "step-000001"
    (step_folder / "adapter").mkdir(parents=True, exist_ok=True)
    (step_folder / "adapter" / "adapter_model.safetensors").write_bytes(b"x")
    (step_folder / "MANIFEST.json").write_text(json.dumps({"files": files}))


def checkpoint_outside(run: Path, outside: Path) -> None:
    """Record a checkpoint in somebody else's folder."""
    add_checkpoint(run, {}, os.path.relpath(outside / "kept", run))
    (outside / "kept" / "MANIFEST.json").write_text('{"files": {}}')


def checkpoint_at_absolute_path(run: Path, outside: Path) -> None:
    add_checkpoint(run, {}, str(outside / "kept"))


def manifest_as_pipe(run: Path, outside: Path) -> None:
    add_checkpoint(run, {})
    os.mkfifo(clear_path(run, "checkpoints/step-000001/MANIFEST.json"))


def manifest_with_outside_file(run: Path, outside: Path) -> None:
    name = os.path.relpath(outside / "pipe", run / "checkpoints" / "step-000001")
    add_checkpoint(run, {name: {"bytes": 0, "sha256": "0" * 64}})


def compressed_bomb(run: Path, outside: Path) -> None:
    """250 KB for each rollout, which expand to 250 MB."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(250)) + packer.flush()
    db = apsw.Connection(str(run / DATABASE))
    db.execute("UPDATE trajectories SET body = ?", (packed,))
    db.close()


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
HUGE = "9223372036854775807"
HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "events are endless": run_sql(
        "ALTER TABLE events RENAME TO kept",
        f"CREATE VIEW events AS {ENDLESS} SELECT i AS seq, 'log.written' AS kind, '' AS body "
        "FROM n",
    ),
    "trajectories are endless": run_sql(
        "ALTER TABLE trajectories RENAME TO kept",
        f"CREATE VIEW trajectories AS {ENDLESS} SELECT kept.* FROM n, kept",
    ),
    "an endless trigger": run_sql(
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN INSERT INTO labels(id, seq, split, step, "
        f"grp, body) {ENDLESS} SELECT i, i, '', 0, 0, '' FROM n; END"
    ),
    "a column that is computed": run_sql(
        "ALTER TABLE checkpoints RENAME TO kept",
        "CREATE TABLE checkpoints(step INTEGER PRIMARY KEY, "
        "record TEXT AS (hex(zeroblob(200000000)) || step))",
        "INSERT INTO checkpoints(step) VALUES (1), (2), (3), (4)",
    ),
    "huge steps": run_sql(
        f"UPDATE trajectories SET step = {HUGE}, turns = {HUGE}, tokens = {HUGE}"
    ),
    "negative steps": run_sql("UPDATE trajectories SET step = -step - 1, grp = -grp - 1"),
    "infinite rewards": run_sql("UPDATE trajectories SET reward = 9e999, advantage = -9e999"),
    "a large event": run_sql(
        f"INSERT INTO events SELECT {HUGE}, 'log.written', hex(zeroblob(50000000))"
    ),
    "a large summary": run_sql(
        "UPDATE trajectories SET summary = hex(zeroblob(50000000)) WHERE number < 3"
    ),
    "titles with escapes": run_sql(
        "UPDATE trajectories SET title = char(27) || ']0;x' || char(10)"
    ),
    "packed rows that swell": compressed_bomb,
    "run.db is a link": add_link(DATABASE, "their.db"),
    "run.json is a link": add_link(SPEC, "run.json"),
    "wal is a link": add_link(f"{DATABASE}-wal", "file"),
    "shm is a link": add_link(f"{DATABASE}-shm", "file"),
    "ballast is a link": add_link("ballast", "file"),
    "ballast is a pipe": add_pipe("ballast"),
    "ballast is a folder": add_folder("ballast"),
    "lock is a link": add_link("lock", "file"),
    "lock is a pipe": add_pipe("lock"),
    "lock is a folder": add_folder("lock"),
    "log is a link": add_link("logs/run.log", "file"),
    "log is a pipe": add_pipe("logs/run.log"),
    "log is a folder": add_folder("logs/run.log"),
    "logs is a link": add_link("logs", "kept"),
    "logs is a pipe": add_pipe("logs"),
    "checkpoints is a link": add_link("checkpoints", "kept"),
    "checkpoints is a pipe": add_pipe("checkpoints"),
    "scenarios is a pipe": add_pipe("scenarios.jsonl"),
    "replica is a pipe": add_pipe("replica.json"),
    "replica is a folder": add_folder("replica.json"),
    "replica is deep": lambda run, outside: clear_path(run, "replica.json").write_text("[" * 10**6),
    "a link of any name": add_link("untrained-00000000", "kept"),
    "damaged is a link": add_link("damaged", "kept"),
    "exports is a link": add_link("exports", "kept"),
    "checkpoint elsewhere": checkpoint_outside,
    "checkpoint by a whole path": checkpoint_at_absolute_path,
    "manifest is a pipe": manifest_as_pipe,
    "manifest names others": manifest_with_outside_file,
}


@dataclass
class HostileWorkspace:
    """Engine over a workspace with an honest run, hostile runs, and files outside."""

    engine: Engine
    runs: dict[str, Path]
    honest: Path
    outside: Path
    stderr: Path
    before: dict[str, object]

    def outside_files(self) -> dict[str, object]:
        """Names, kinds and content of everything outside of the project."""
        return {
            str(file.relative_to(self.outside)): file.read_bytes() if file.is_file() else "other"
            for file in sorted(self.outside.rglob("*"))
        } | {
            f"honest {one.name}": one.stat().st_size
            for one in sorted(self.honest.iterdir())
            if one.suffix not in (".db-shm", ".db-wal")
        }

    def ask(self, method: str, route: str, body: Any = None, **params: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{self.engine.port}{route}"
        headers = {"Authorization": f"Bearer {self.engine.token}"}
        return httpx.request(
            method,
            url,
            headers=headers,
            json=body,
            params=params,
            timeout=10 * MOST_S,
            verify=False,
        )


def copy_run(where: Path, template: Path, name: str = "") -> Path:
    name = name or ulid()
    run = Path(shutil.copytree(template, where / "runs" / name))
    (run / SPEC).write_text((run / SPEC).read_text().replace(template.name, name))
    db = apsw.Connection(str(run / DATABASE))
    db.execute("UPDATE events SET body = replace(body, ?, ?)", (template.name, name))
    db.close()
    return run


@pytest.fixture(scope="module")
def hostile_workspace(
    home: Path, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[HostileWorkspace]:
    outside = tmp_path_factory.mktemp("outside")
    template = make(outside / "01JD5MAMBERKESTREL00000000", MOVES)
    (outside / "file").write_bytes(SECRET)
    (outside / "kept").mkdir()
    (outside / "kept" / "run.log").write_bytes(SECRET)
    shutil.copyfile(template / DATABASE, outside / "their.db")
    shutil.copyfile(template / SPEC, outside / "run.json")
    mine, theirs = make_project(home / "mine", tiny_model), home / "theirs"
    theirs.mkdir()
    shutil.copyfile(mine / "project.toml", theirs / "project.toml")
    honest = copy_run(mine, template)
    runs = {}
    for what, damage in HOSTILE.items():
        runs[what] = copy_run(theirs, template)
        damage(runs[what], outside)
    os.mkfifo(outside / "pipe")
    file = tmp_path_factory.mktemp("stderr") / "stderr"
    with file.open("wb") as stderr:
        engine = start_engine(home, stderr=stderr)
    place = HostileWorkspace(engine, runs, honest, outside, file, {})
    place.before = place.outside_files()
    yield place
    stop_engine(engine)


LABEL = {"split": "train", "step": 1, "group": 0}
ROUTES: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("GET", "", None, {}),
    ("GET", "/log", None, {}),
    ("GET", "/evaluation", None, {}),
    ("POST", "/trajectories", {}, {}),
    ("POST", "/trajectories", {"search": "the", "sort": "reward"}, {}),
    ("POST", "/groups", {}, {}),
    ("POST", "/scenarios", {"split": "train"}, {}),
    ("GET", "/groups/train/1/0", None, {}),
    ("GET", "/agreement", None, {}),
    ("GET", "/disagreements", None, {"judge": "x", "rubric": "y"}),
    ("GET", "/labels", None, {}),
    ("GET", "/checkpoints", None, {}),
    ("POST", "/checkpoints/1/export", {"format": "adapter", "out": "{out}"}, {}),
    ("POST", "/demonstrations", {"keep": "all"}, {}),
    ("POST", "/judge/price", {"source": "More letters are better."}, {}),
    ("GET", "/files", None, {}),
    ("GET", "/file", None, {"path": "logs/run.log"}),
    ("GET", "/changes", None, {"after": 0, "wait": 0}),
    ("POST", "/labels/preview", "label", {}),
    ("POST", "/labels", "label", {}),
    ("POST", "/labels/undo", None, {}),
    ("POST", "/checkpoints/1/pin", {"pinned": True}, {}),
    ("DELETE", "/checkpoints/1", None, {}),
    ("POST", "/command", {"action": "resume"}, {}),
    ("POST", "/command", {"action": "extend", "steps": 99}, {}),
    ("POST", "/repair", None, {}),
    ("DELETE", "", None, {}),
]


def read_events(hostile_workspace: HostileWorkspace, run: str) -> int:
    """Read the first second of a run's events."""
    url = f"http://127.0.0.1:{hostile_workspace.engine.port}/runs/{run}/events"
    headers = {"Authorization": f"Bearer {hostile_workspace.engine.token}"}
    end = time.monotonic() + 1
    with (
        contextlib.suppress(httpx.ReadTimeout),
        httpx.stream("GET", url, headers=headers, timeout=1, verify=False) as answer,
    ):
        for _ in answer.iter_bytes():
            if time.monotonic() > end:
                break
        return answer.status_code
    return 200


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_run_causes_no_crash_leak_or_outside_change(
    hostile_workspace: HostileWorkspace, tmp_path: Path, what: str
) -> None:
    run = hostile_workspace.runs[what]
    label = {
        "id": ulid(), "run_id": run.name, "at": 1.0, "split": "train", "step": 1, "group": 0,
        "words": [{"kind": "note", "text": "x"}],
    }  # fmt: skip
    process = psutil.Process(hostile_workspace.engine.process.pid)
    before = most = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.05):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    faults: list[str] = []
    codes: list[str] = []
    log = hostile_workspace.stderr.stat().st_size
    try:
        read_events(hostile_workspace, run.name)
        for method, route, body, params in ROUTES:
            sent = json.loads(json.dumps(body).replace("{out}", str(tmp_path / "out")))
            sent = label if body == "label" else sent
            started_at = hostile_workspace.engine.cpu_s()
            try:
                answer = hostile_workspace.ask(method, f"/runs/{run.name}{route}", sent, **params)
            except httpx.TimeoutException:
                faults.append(f"{method} {route} hangs")
                continue
            took = hostile_workspace.engine.cpu_s() - started_at
            code = answer.text[:60] if answer.status_code >= 400 else ""
            codes.append(f"{route}:{answer.status_code} {code}")
            if answer.status_code >= 500 or took > MOST_S:
                faults.append(f"{method} {route}: {answer.status_code} in {took:.1f} s")
            if SECRET[:30] in answer.content:
                faults.append(f"{method} {route} shows a file from outside")
        started_at = hostile_workspace.engine.cpu_s()
        ok = (
            hostile_workspace.ask(
                "GET", f"/runs/{hostile_workspace.honest.name}/labels"
            ).status_code
            == 200
        )
        listed = hostile_workspace.ask("GET", "/projects")
        if (
            not ok
            or listed.status_code != 200
            or hostile_workspace.engine.cpu_s() - started_at > MOST_S
        ):
            faults.append("the honest run is not read")
    finally:
        done.set()
        watcher.join()
    if most - before > MOST_MEMORY:
        faults.append(f"{(most - before) / 2**20:.0f} MB of memory")
    if hostile_workspace.outside_files() != hostile_workspace.before:
        changed = hostile_workspace.outside_files().items() ^ hostile_workspace.before.items()
        faults.append(f"changed outside: {sorted({name for name, _ in changed})}")
        hostile_workspace.before = hostile_workspace.outside_files()
    with hostile_workspace.stderr.open("rb") as file:
        file.seek(log)
        if b"Traceback" in (printed := file.read()):
            faults.append(printed.decode(errors="replace")[-300:].replace("\n", " | "))
    if os.path.lexists(run):
        faults.append("the run cannot be deleted")
    print(what, codes)
    assert not faults
