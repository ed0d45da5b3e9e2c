"""Workspace of 200 runs, a fifth of them damaged: opening, listing, training and repair."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from engine.client import EngineClient
from engine.protocol.events.run import RunFinished
from engine.protocol.problems import AtelierError, Refused, StoreError
from engine.protocol.records.runs import RunSummary
from engine.runtime.ids import ulid
from engine.storage.run_folder.run import DATABASE, SPEC
from tests.engine.storage.run_db.test_repair import BAD_EVENTS, MOVES, compare, make
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine

RUNS, EVERY = 200, 5
CUT = 100
"""Sequence number of the event that some damages affect."""


def run_sql(statement: str, *values: object) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        db = apsw.Connection(str(run / DATABASE))
        db.execute(statement, values)  # type: ignore[arg-type]
        db.close()

    return damage


def overwrite(damaged_workspace: int, size: int, byte: int = 0) -> Callable[[Path], None]:
    """Overwrite bytes of the database."""

    def damage(run: Path) -> None:
        with (run / DATABASE).open("r+b") as file:
            file.seek(damaged_workspace)
            file.write(bytes([byte]) * size)

    return damage


def write_spec(content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / SPEC).write_bytes(content) and None


FIRST = "UPDATE events SET body = ? WHERE kind IN ('run.started', 'step.finished')"
DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty database": lambda run: (run / DATABASE).write_bytes(b""),
    "no database": lambda run: (run / DATABASE).unlink(),
    "database is a folder": lambda run: ((run / DATABASE).unlink(), (run / DATABASE).mkdir()),
    "database is a pipe": lambda run: ((run / DATABASE).unlink(), os.mkfifo(run / DATABASE)),
    "text": lambda run: (run / DATABASE).write_text("no database " * 5000),
    "half": lambda run: os.truncate(run / DATABASE, (run / DATABASE).stat().st_size // 2),
    "a page": lambda run: os.truncate(run / DATABASE, 4096),
    "no header": overwrite(0, 100),
    "other header": overwrite(16, 60, 0xFF),
    "no schema": overwrite(100, 1000, 0x41),
    "no events": run_sql("DROP TABLE events"),
    "no trajectories": run_sql("DROP TABLE trajectories"),
    "newer": run_sql("PRAGMA user_version = 99"),
    "spec is a list": write_spec(b"[]"),
    "spec is empty": write_spec(b""),
    "spec is deep": write_spec(b'{"a":' * 100_000),
    "spec is no UTF-8": write_spec(b"\xff\xfe\x00"),
    "spec is infinite": write_spec(b'{"id": "x", "started_at": 1e999}'),
    "no spec": lambda run: (run / SPEC).unlink(),
    "spec is a pipe": lambda run: ((run / SPEC).unlink(), os.mkfifo(run / SPEC)),
    "spec of another": lambda run: (run / SPEC).write_text(
        (run / SPEC).read_text().replace(run.name, ulid())
    ),
    **{f"event: {name}": run_sql(FIRST, body) for name, body in BAD_EVENTS.items()},
    "event is text": run_sql(FIRST, "\x00"),
}
CUTTING = {
    f"cut: {name}": run_sql(f"UPDATE events SET body = ? WHERE seq = {CUT}", body)
    for name, body in BAD_EVENTS.items()
}
"""Damages that only readers of the event notice, not the list of runs."""


@pytest.fixture(scope="module")
def damaged_workspace(home: Path, tiny_model: Path) -> Path:
    """Four projects of fifty runs, every fifth of them damaged, and damaged projects."""
    kinds = list(DAMAGES.items())
    template = make(home / "template" / "01JD5MAMBERKESTREL00000000", 12)
    for number in range(RUNS):
        name = ulid()
        run = home / f"p{number % 4}" / "runs" / name
        shutil.copytree(template, run)
        file = run / SPEC
        file.write_text(file.read_text().replace(template.name, name))
        run_sql("UPDATE events SET body = replace(body, ?, ?)", template.name, name)(run)
        if number % EVERY == 0:
            kinds[number // EVERY % len(kinds)][1](run)
    for number in range(4):
        (home / f"p{number}" / "project.toml").write_text('[model]\nname = "m"\n')
    shutil.rmtree(home / "template")
    bad = {
        "latin": b"name = \"caf\xe9\"\n", "deep": b"a = " + b"[" * 50_000,
        "empty": b"", "zeros": bytes(1000), "no-toml": b"<html>",
        "infinite": b"[train]\nlr = inf\n",
    }  # fmt: skip
    for folder, content in bad.items():
        (home / folder).mkdir()
        (home / folder / "project.toml").write_bytes(content)
    (home / "pipe").mkdir()
    os.mkfifo(home / "pipe" / "project.toml")
    (home / "file").mkdir()
    (home / "file" / "project.toml").write_text("")
    (home / "file" / "runs").write_text("not a folder")
    make_project(home / "letters", tiny_model)
    return home


@pytest.fixture(scope="module")
def engine(damaged_workspace: Path) -> Iterator[Engine]:
    engine = start_engine(damaged_workspace)
    yield engine
    stop_engine(engine)


def all_runs(engine: Engine) -> list[RunSummary]:
    return engine.call(lambda client: client.runs())


def test_workspace_with_damaged_runs_lists_all_and_trains(
    engine: Engine, damaged_workspace: Path
) -> None:
    started_at = time.monotonic()
    runs = all_runs(engine)
    states = Counter(run.state for run in runs)
    print(f"{len(runs)} runs listed in {time.monotonic() - started_at:.1f} s: {dict(states)}")
    assert len(runs) == RUNS
    codes = Counter(run.problem.code for run in runs if run.state == "damaged" and run.problem)
    assert states["damaged"] == RUNS // EVERY, codes
    for run in runs:
        if run.state == "damaged":
            assert run.problem is not None
            assert run.problem.message
    views = engine.call(lambda client: client.projects())
    assert {Path(view.path).name for view in views} >= {"p0", "latin", "deep", "pipe", "file"}
    for view in views:
        bad = Path(view.path).name not in ("p0", "p1", "p2", "p3", "letters", "empty", "file")
        assert bool(view.problems) >= bad, view.path
    fresh = engine.train(damaged_workspace / "letters", **{"train.steps": 1})
    assert isinstance(engine.wait(fresh)[-1], RunFinished)


def test_damaged_run_is_rejected_when_read(engine: Engine, damaged_workspace: Path) -> None:
    damaged = [run for run in all_runs(engine) if run.state == "damaged"]

    codes: Counter[str] = Counter()

    async def read(client: EngineClient) -> None:
        for run in damaged:
            for call in (client.agreement, client.checkpoints, client.labels):
                try:
                    await call(run.id)
                except AtelierError as error:
                    codes[error.problem.code] += 1

    engine.call(read)
    print(f"readings refused: {dict(codes)}")
    assert set(codes) <= {
        "store.damaged", "store.no_spec", "store.newer", "store.unreadable", "run.unknown",
        "store.foreign",
    }  # fmt: skip


def test_damaged_runs_are_repaired_or_deleted(engine: Engine, damaged_workspace: Path) -> None:
    damaged = [run for run in all_runs(engine) if run.state == "damaged"]
    ends: Counter[str] = Counter()

    async def settle(client: EngineClient) -> None:
        for run in damaged:
            try:
                ends[(await client.repair_run(run.id)).state] += 1
            except (Refused, StoreError) as error:
                ends[error.problem.code] += 1
                await client.remove_run(run.id)

    engine.call(settle)
    print(f"{len(damaged)} damaged runs: {dict(ends)}")
    assert ends["stopped"] >= 12
    left = all_runs(engine)
    assert not [run for run in left if run.state == "damaged"]
    assert len(left) == RUNS + 1 - sum(count for end, count in ends.items() if end != "stopped")


@pytest.mark.parametrize("what", CUTTING)
def test_repaired_run_equals_original_up_to_damage(
    engine: Engine, damaged_workspace: Path, tmp_path: Path, what: str
) -> None:
    name = "01JD5MAMBERKESTREL00000000"
    folder = damaged_workspace / "p0" / "runs" / name
    make(folder, MOVES)
    CUTTING[what](folder)
    run = engine.call(lambda client: client.repair_run(name))
    assert run.state == "stopped"
    compare(folder, CUT - 2, tmp_path)
    engine.call(lambda client: client.remove_run(name))
    assert not folder.exists()
