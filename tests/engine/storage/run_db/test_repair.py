"""Damaged runs: read behind a wall, repaired up to the damage, compared with the undamaged."""

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
from tests.engine.remote.mirror.story import Story, contents

RUN = "01JD5MAMBERKESTREL00000000"
MOVES = 160
LEFT = {f"{DATABASE}-wal", f"{DATABASE}-shm"}
"""Empty files that readers leave beside a database."""
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
        await Story(Random(seed)).go_on(writer, moves)
        writer.close()

    asyncio.run(fill())
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("whole") / RUN, MOVES)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "runs" / RUN))


def spoil_row(run: Path, sql: str, *values: object) -> None:
    db = apsw.Connection(str(run / DATABASE))
    db.execute(sql, values)  # type: ignore[arg-type]
    db.close()


def rollouts(run: Path) -> list[tuple[object, ...]]:
    """Rows of the trajectories without their row numbers, in the order of these."""
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
    then = make(tmp_path / "then" / RUN, moves, seed)
    ours, theirs = contents(run / DATABASE), contents(then / DATABASE)
    for table in COMPARED:
        assert ours[table] == theirs[table], table
    assert rollouts(run) == rollouts(then)
    kept, undamaged = ours["events"][:-1], theirs["events"]
    assert [row[:2] for row in kept] == [row[:2] for row in undamaged]
    for mine, other in zip(kept, undamaged, strict=True):
        told = [decode(str(row[2])).model_copy(update={"at": 0.0}) for row in (mine, other)]
        assert told[0] == told[1]
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


@pytest.mark.parametrize("what", BAD_EVENTS)
def test_a_bad_event_ends_the_run_before_it(run: Path, tmp_path: Path, what: str) -> None:
    spoil_row(run, "UPDATE events SET body = ? WHERE seq = 100", BAD_EVENTS[what])
    repaired = repair(run)
    assert (repaired.events, repaired.broken) == (99, True)
    compare(run, 98, tmp_path)
    assert (next((run / "damaged").iterdir()) / DATABASE).is_file()


@pytest.mark.parametrize("seed", range(4))
def test_a_missing_event_ends_the_run_before_it(tmp_path: Path, seed: int) -> None:
    run = make(tmp_path / "runs" / RUN, MOVES, seed)
    gap = Random(seed).randint(2, MOVES)
    spoil_row(run, "DELETE FROM events WHERE seq = ?", gap)
    assert repair(run).events == gap - 1
    compare(run, gap - 2, tmp_path, seed)


def test_transcripts_that_are_lost_leave_rewards_and_say_so(run: Path, tmp_path: Path) -> None:
    spoil_row(run, "UPDATE trajectories SET body = x'00' WHERE split = 'validation'")
    repaired = repair(run)
    assert repaired.transcripts > 0
    assert repaired.events == MOVES + 1
    assert f"{repaired.transcripts} transcripts were lost" in repaired.words
    rows = {row[0]: row[1:] for row in rollouts(run)}
    then = make(tmp_path / "then" / RUN, MOVES)
    assert rows == {row[0]: row[1:] for row in rollouts(then)}


def test_torn_bytes_never_raise_anything_else_and_keep_a_beginning(
    whole: Path, tmp_path: Path
) -> None:
    """Pages overwritten, zeroed, or cut off the end."""
    codes: list[str] = []
    for seed in range(24):
        tear_and_repair(whole, tmp_path / str(seed), seed, codes)
    found = Counter(codes)
    print(f"torn runs: {dict(found)}")
    assert set(found) <= {"repaired", "repair.whole", "repair.nothing"}
    assert found["repaired"] > 4


def tear_and_repair(whole: Path, tmp_path: Path, seed: int, codes: list[str]) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "runs" / RUN))
    dice, file = Random(seed), run / DATABASE
    content = bytearray(file.read_bytes())
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(4096, len(content) - 4096) // 4096 * 4096
        size = dice.choice((16, 512, 4096))
        content[place : place + size] = dice.choice((bytes(size), dice.randbytes(size)))
    if dice.random() < 0.3:
        del content[dice.randrange(len(content) // 2, len(content)) :]
    file.write_bytes(content)
    try:
        repaired = repair(run)
    except (StoreError, Refused) as refused:  # nothing is left, or it hit what nobody reads
        codes.append(refused.problem.code)
        return
    codes.append("repaired")
    assert summarise(run).state == "stopped"
    with pytest.raises(Refused, match="not damaged"):
        repair(run)
    undamaged = contents(whole / DATABASE)["events"]
    ours = contents(run / DATABASE)["events"]
    count = repaired.events or len(ours)
    assert ours[1:count] == undamaged[1:count]  # the first may be made of run.json


@pytest.mark.parametrize(
    "spec", [b"[]", b"", b'{"a":' * 100_000, b"\xff\xfe", b'{"id": 1}', b"null"], ids=range(6)
)
def test_settings_that_cannot_be_read_are_written_anew(run: Path, spec: bytes) -> None:
    before = read_spec(run)
    (run / SPEC).write_bytes(spec)
    with pytest.raises(StoreError, match=r"run\.json cannot be read"):
        read_spec(run)
    assert repair(run).events == 0
    assert read_spec(run) == before


def test_money_spent_behind_the_damage_stays_spent(run: Path) -> None:
    reader = RunReader(run / DATABASE)
    spent = reader.judge_cost() + reader.attempts_cost()
    reader.close()
    spoil_row(run, "DELETE FROM events WHERE seq = 100")
    spoil_row(run, "DELETE FROM calls WHERE rowid IN (SELECT rowid FROM calls LIMIT 2)")
    repair(run)
    reader = RunReader(run / DATABASE)
    assert reader.judge_cost() + reader.attempts_cost() >= spent - 1e-9
    reader.close()


def test_what_is_whole_is_left_alone_and_nothing_is_said_to_be_so(run: Path) -> None:
    before = (run / DATABASE).read_bytes()
    with pytest.raises(Refused, match="not damaged"):
        repair(run)
    assert (run / DATABASE).read_bytes() == before
    (run / DATABASE).write_bytes(b"")
    with pytest.raises(StoreError, match="Nothing of this run can be recovered"):
        repair(run)
    assert {path.name for path in run.iterdir()} - LEFT == {DATABASE, SPEC}


def test_a_run_is_removed_and_nothing_else(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "runs" / "link"
    link.symlink_to(run)
    for wrong in (link, tmp_path):
        with pytest.raises(Refused):
            remove(wrong)
    remove(run)
    assert not run.exists()


SPOIL: dict[str, Callable[[Path], object]] = {
    "no database": lambda run: (run / DATABASE).unlink(),
    "empty database": lambda run: (run / DATABASE).write_bytes(b""),
    "text": lambda run: (run / DATABASE).write_text("not a database" * 1000),
    "no tables": lambda run: spoil_row(run, "DROP TABLE events"),
    "bad event": lambda run: spoil_row(
        run, "UPDATE events SET body = '{' WHERE kind = 'run.started'"
    ),
}


@pytest.mark.parametrize("what", SPOIL)
def test_every_reading_of_a_damaged_database_is_one_error(run: Path, what: str) -> None:
    SPOIL[what](run)
    with pytest.raises(StoreError) as raised:
        summarise(run)
    assert raised.value.problem.code in ("store.damaged", "store.unreadable")


def test_many_who_open_a_run_at_once_do_not_find_it_damaged(run: Path, tmp_path: Path) -> None:
    """Whoever comes first makes the shared memory of the WAL, and the others wait for it."""
    for number in range(40):
        file = tmp_path / f"copy-{number}" / DATABASE
        file.parent.mkdir()
        shutil.copy(run / DATABASE, file)
        together = threading.Barrier(6)

        def read(file: Path = file, together: threading.Barrier = together) -> int:
            together.wait()
            reader = RunReader(file)
            try:
                return reader.last_seq()
            finally:
                reader.close()

        with ThreadPoolExecutor(6) as pool:
            found = [one.result() for one in [pool.submit(read) for _ in range(6)]]
        assert len(set(found)) == 1
        assert found[0] > 0


def test_one_file_is_the_whole_run(run: Path, tmp_path: Path) -> None:
    wal = run / f"{DATABASE}-wal"
    assert not wal.exists() or not wal.stat().st_size
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copyfile(run / DATABASE, elsewhere / DATABASE)
    assert contents(elsewhere / DATABASE) == contents(run / DATABASE)
