"""Damaged runs: errors on reading, repair up to the damage, comparison with the undamaged run."""

import asyncio
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import apsw
import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import RunStarted, decode
from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.runs import RunSpec
from engine.server.services.repair import remove, repair
from engine.server.services.summaries import summarise
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, SPEC, read_spec, write_spec
from tests.engine.remote.mirror.story import RunSimulator, contents

RUN = "01JD5MAMBERKESTREL00000000"
MOVES = 160
READER_FILES = {f"{DATABASE}-wal", f"{DATABASE}-shm"}
"""Empty files that readers create beside a database."""
COMPARED = ("groups", "labels", "checkpoints")


def make(folder: Path, moves: int, seed: int = 3) -> Path:
    """Create a run with `moves` random actions."""
    folder.mkdir(parents=True)
    spec = RunSpec(
        id=RUN, name="amber-kestrel", project="p", started_at=1.0, config=ProjectConfig(),
        model_path="",
    )  # fmt: skip
    write_spec(folder, spec)

    async def fill() -> None:
        writer = RunWriter(folder / DATABASE, RUN)
        await writer.say(RunStarted(spec=spec))
        await RunSimulator(Random(seed)).perform(writer, moves)
        writer.close()

    asyncio.run(fill())
    return folder


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("whole") / RUN, MOVES)


@pytest.fixture
def run(undamaged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undamaged, tmp_path / "runs" / RUN))


def corrupt_row(run: Path, sql: str, *values: object) -> None:
    db = apsw.Connection(str(run / DATABASE))
    db.execute(sql, values)  # type: ignore[arg-type]
    db.close()


def rollouts(run: Path) -> list[tuple[object, ...]]:
    """Rows of the trajectories without row numbers, in row order."""
    reader = RunReader(run / DATABASE)
    try:
        rows = reader._rows(
            "SELECT id, split, step, grp, idx, reward, advantage, labelled, summary "
            "FROM trajectories ORDER BY number",
            (),
        )
        return [(*row[:-1], json.loads(str(row[-1]))) for row in rows]
    finally:
        reader.close()


def compare(run: Path, moves: int, tmp_path: Path, seed: int = 3) -> None:
    """Check that the repaired run equals the undamaged one after `moves` actions."""
    undamaged_run = make(tmp_path / "then" / RUN, moves, seed)
    ours, expected = contents(run / DATABASE), contents(undamaged_run / DATABASE)
    for table in COMPARED:
        assert ours[table] == expected[table], table
    assert rollouts(run) == rollouts(undamaged_run)
    kept_events, undamaged = ours["events"][:-1], expected["events"]
    assert [row[:2] for row in kept_events] == [row[:2] for row in undamaged]
    for actual, other in zip(kept_events, undamaged, strict=True):
        events = [decode(str(row[2])).model_copy(update={"at": 0.0}) for row in (actual, other)]
        assert events[0] == events[1]
    last = decode(str(ours["events"][-1][2]))
    assert (last.kind, last.seq) == ("log.written", len(undamaged) + 1)


BAD_EVENTS = {
    "not valid JSON": "{",
    "nested": '{"a":' * 100_000,
    "no event": "{}",
    "wrong type": '{"kind": "step.finished", "seq": 100, "step": "one"}',
    "wrong number": '{"kind": "phase.changed", "seq": 7, "step": 1, "phase": "loading"}',
    "infinite": '{"kind": "step.finished", "seq": 100, "step": 1, "metrics": {"loss": 1e999}}',
}


@pytest.mark.parametrize("damage", BAD_EVENTS)
def test_bad_event_ends_the_run_before_it(run: Path, tmp_path: Path, damage: str) -> None:
    corrupt_row(run, "UPDATE events SET body = ? WHERE seq = 100", BAD_EVENTS[damage])
    repaired = repair(run)
    assert (repaired.events, repaired.broken) == (99, True)
    compare(run, 98, tmp_path)
    assert (next((run / "damaged").iterdir()) / DATABASE).is_file()


@pytest.mark.parametrize("seed", range(4))
def test_missing_event_ends_the_run_before_it(tmp_path: Path, seed: int) -> None:
    run = make(tmp_path / "runs" / RUN, MOVES, seed)
    gap = Random(seed).randint(2, MOVES)
    corrupt_row(run, "DELETE FROM events WHERE seq = ?", gap)
    assert repair(run).events == gap - 1
    compare(run, gap - 2, tmp_path, seed)


def test_lost_transcripts_are_reported_and_rewards_are_kept(run: Path, tmp_path: Path) -> None:
    corrupt_row(run, "UPDATE trajectories SET body = x'00' WHERE split = 'validation'")
    repaired = repair(run)
    assert repaired.transcripts > 0
    assert repaired.events == MOVES + 1
    assert f"Lost transcripts: {repaired.transcripts}." in repaired.words
    rows = {row[0]: row[1:] for row in rollouts(run)}
    undamaged_run = make(tmp_path / "then" / RUN, MOVES)
    assert rows == {row[0]: row[1:] for row in rollouts(undamaged_run)}


def test_torn_bytes_raise_known_errors_and_keep_a_prefix(undamaged: Path, tmp_path: Path) -> None:
    """Pages overwritten, zeroed, or cut off the end."""
    codes: list[str] = []
    for seed in range(24):
        tear_and_repair(undamaged, tmp_path / str(seed), seed, codes)
    counts = Counter(codes)
    print(f"torn runs: {dict(counts)}")
    assert set(counts) <= {"repaired", "repair.whole", "repair.nothing"}
    assert counts["repaired"] > 4


def tear_and_repair(undamaged: Path, tmp_path: Path, seed: int, codes: list[str]) -> None:
    run = Path(shutil.copytree(undamaged, tmp_path / "runs" / RUN))
    rng, file = Random(seed), run / DATABASE
    content = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 4)):
        offset = rng.randrange(4096, len(content) - 4096) // 4096 * 4096
        size = rng.choice((16, 512, 4096))
        content[offset : offset + size] = rng.choice((bytes(size), rng.randbytes(size)))
    if rng.random() < 0.3:
        del content[rng.randrange(len(content) // 2, len(content)) :]
    file.write_bytes(content)
    try:
        repaired = repair(run)
    except (StoreError, Refused) as error:  # nothing recoverable, or unused bytes were hit
        codes.append(error.problem.code)
        return
    codes.append("repaired")
    assert summarise(run).state == "stopped"
    with pytest.raises(Refused, match="not damaged"):
        repair(run)
    expected_events = contents(undamaged / DATABASE)["events"]
    ours = contents(run / DATABASE)["events"]
    count = repaired.events or len(ours)
    assert ours[1:count] == expected_events[1:count]  # the first event may be rebuilt from run.json


@pytest.mark.parametrize(
    "spec", [b"[]", b"", b'{"a":' * 100_000, b"\xff\xfe", b'{"id": 1}', b"null"], ids=range(6)
)
def test_unreadable_settings_are_restored_from_events(run: Path, spec: bytes) -> None:
    before = read_spec(run)
    (run / SPEC).write_bytes(spec)
    with pytest.raises(StoreError, match=r"run\.json cannot be read"):
        read_spec(run)
    assert repair(run).events == 0
    assert read_spec(run) == before


def test_spent_cost_survives_a_repair(run: Path) -> None:
    reader = RunReader(run / DATABASE)
    spent = reader.judge_cost() + reader.attempts_cost()
    reader.close()
    corrupt_row(run, "DELETE FROM events WHERE seq = 100")
    corrupt_row(run, "DELETE FROM calls WHERE rowid IN (SELECT rowid FROM calls LIMIT 2)")
    repair(run)
    reader = RunReader(run / DATABASE)
    assert reader.judge_cost() + reader.attempts_cost() >= spent - 1e-9
    reader.close()


def test_whole_run_is_not_repaired_and_empty_one_is_unrecoverable(run: Path) -> None:
    before = (run / DATABASE).read_bytes()
    with pytest.raises(Refused, match="not damaged"):
        repair(run)
    assert (run / DATABASE).read_bytes() == before
    (run / DATABASE).write_bytes(b"")
    with pytest.raises(StoreError, match="Nothing of this run can be recovered"):
        repair(run)
    assert {path.name for path in run.iterdir()} - READER_FILES == {DATABASE, SPEC}


def test_remove_deletes_a_run_and_refuses_other_paths(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "runs" / "link"
    link.symlink_to(run)
    for path in (link, tmp_path):
        with pytest.raises(Refused):
            remove(path)
    remove(run)
    assert not run.exists()


CORRUPTIONS: dict[str, Callable[[Path], object]] = {
    "no database": lambda run: (run / DATABASE).unlink(),
    "empty database": lambda run: (run / DATABASE).write_bytes(b""),
    "text": lambda run: (run / DATABASE).write_text("not a database" * 1000),
    "no tables": lambda run: corrupt_row(run, "DROP TABLE events"),
    "bad event": lambda run: corrupt_row(
        run, "UPDATE events SET body = '{' WHERE kind = 'run.started'"
    ),
}


@pytest.mark.parametrize("damage", CORRUPTIONS)
def test_every_damage_raises_a_store_error(run: Path, damage: str) -> None:
    CORRUPTIONS[damage](run)
    with pytest.raises(StoreError) as raised:
        summarise(run)
    assert raised.value.problem.code in ("store.damaged", "store.unreadable")


def test_concurrent_readers_do_not_report_damage(run: Path, tmp_path: Path) -> None:
    """The first reader creates the WAL's shared memory, and the others wait for it."""
    for number in range(40):
        file = tmp_path / f"copy-{number}" / DATABASE
        file.parent.mkdir()
        shutil.copy(run / DATABASE, file)
        barrier = threading.Barrier(6)

        def read(file: Path = file, barrier: threading.Barrier = barrier) -> int:
            barrier.wait()
            reader = RunReader(file)
            try:
                return reader.last_seq()
            finally:
                reader.close()

        with ThreadPoolExecutor(6) as pool:
            counts = [one.result() for one in [pool.submit(read) for _ in range(6)]]
        assert len(set(counts)) == 1
        assert counts[0] > 0


def test_database_file_alone_contains_the_whole_run(run: Path, tmp_path: Path) -> None:
    wal = run / f"{DATABASE}-wal"
    assert not wal.exists() or not wal.stat().st_size
    copy_folder = tmp_path / "elsewhere"
    copy_folder.mkdir()
    shutil.copyfile(run / DATABASE, copy_folder / DATABASE)
    assert contents(copy_folder / DATABASE) == contents(run / DATABASE)
