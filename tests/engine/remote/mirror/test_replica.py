"""Replica of a run: equal to its source whatever was written and however it was paged."""

import asyncio
import inspect
import itertools
import json
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from random import Random

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.events import run
from engine.protocol.problems import StoreError
from engine.protocol.records.conversations import Message
from engine.remote.mirror.pages import ROWS, SPEAKS, read_page
from engine.remote.mirror.replica import Replica, searched_columns
from engine.storage.run_db.copy import copy_until
from engine.storage.run_db.facts import search_text
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE
from tests.engine.remote.mirror.story import MOVES, TABLES, RunSimulator, contents

ROOT = Path(__file__).parents[4]


def write(file: Path, simulator: RunSimulator, times: int, run_id: str = "run") -> None:
    async def work() -> None:
        writer = RunWriter(file, run_id)
        await simulator.perform(writer, times)
        writer.close()

    asyncio.run(work())


def catch_up(file: Path, replica: Replica, run_id: str = "run", **bounds: int) -> list[bytes]:
    pages = []
    while page := read_page(file, run_id, replica.seq, **bounds):
        assert replica.apply(page.content) == replica.seq == page.last
        pages.append(page.content)
    return pages


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Database of a run with 120 random actions."""
    write(tmp_path / "far.db", RunSimulator(Random(7)), 120)
    return tmp_path / "far.db"


@pytest.fixture
def replica_folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    parts=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 9), st.sampled_from((1, 4000, 2**24))),
        min_size=1,
        max_size=4,
    ),
)
def test_replica_equals_its_source(seed: int, parts: list[tuple[int, int, int]]) -> None:
    """Between parts of a run a few pages are fetched, some of them twice."""
    with tempfile.TemporaryDirectory() as folder:
        source, replica_folder = Path(folder) / "far.db", Path(folder)
        simulator, replica = RunSimulator(Random(seed)), Replica(replica_folder, "run")
        for times, most_events, most_bytes in parts:
            write(source, simulator, times)
            for _ in range(3):
                bounds = {"most_events": most_events, "most_bytes": most_bytes}
                if page := read_page(source, "run", replica.seq, **bounds):
                    replica.apply(page.content)
                    assert replica.apply(page.content) == page.last
        catch_up(source, replica)
        replica.close()
        assert contents(replica_folder / DATABASE) == contents(source)


def test_branch_is_replicated_with_rows_of_its_parent(source: Path, replica_folder: Path) -> None:
    """Rows copied from the parent are changed by events of the branch."""
    branch = source.parent / "branch.db"
    copy_until(source, branch, "branch", 2)
    inherited = contents(branch)["calls"]
    assert inherited
    assert {row[4] for row in inherited} == {0}
    write(branch, RunSimulator(Random(8)), 30, "branch")
    replica = Replica(replica_folder, "branch")
    catch_up(branch, replica, "branch", most_events=7)
    replica.close()
    assert contents(replica_folder / DATABASE) == contents(branch)


def test_every_table_and_writer_method_is_mirrored(tmp_path: Path) -> None:
    """A new table must be paged, and a new writer method needs an action in the simulator."""
    db = open_writer(tmp_path / "run.db")
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    db.close()
    decompressed = {name for name in tables if not name.startswith("transcripts")}
    assert decompressed == {"events", *ROWS} == set(TABLES)
    methods = inspect.getmembers(RunWriter, inspect.iscoroutinefunction)
    assert {name for name, _ in methods if not name.startswith("_")} == set(MOVES)
    kinds = {one.model_fields["kind"].default for one in run.Event.__args__}
    assert set(SPEAKS) <= kinds
    assert set(itertools.chain(*SPEAKS.values())) == set(ROWS)


def test_event_kinds_change_exactly_their_declared_tables(tmp_path: Path) -> None:
    """The tables that each event kind changes are those listed in SPEAKS."""
    simulator, tables_by_kind = RunSimulator(Random(3)), dict.fromkeys(SPEAKS, frozenset[str]())

    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run")
        for action in [*MOVES.values()] * 4:
            before, last = contents(tmp_path / "run.db"), writer.seq
            await action(simulator, writer)
            after = contents(tmp_path / "run.db")
            kind = str(after["events"][last][1])
            tampered_page = {name for name in ROWS if after[name] != before[name]}
            tables_by_kind[kind] = tables_by_kind.get(kind, frozenset()) | tampered_page
        writer.close()

    asyncio.run(work())
    assert all(
        tampered_page <= set(SPEAKS.get(kind, ())) for kind, tampered_page in tables_by_kind.items()
    ), tables_by_kind
    assert all(tables_by_kind[kind] == set(tables) for kind, tables in SPEAKS.items()), (
        tables_by_kind
    )


def test_pages_are_limited_by_events_and_bytes(source: Path, replica_folder: Path) -> None:
    by_count = read_page(source, "run", 5, most_events=7)
    assert by_count
    assert (by_count.last, by_count.known) == (12, 120)
    replica = Replica(replica_folder, "run")
    small = catch_up(source, replica, most_bytes=1)
    assert len(small) == 120  # at least one event per page
    assert read_page(source, "run", 120) is None
    replica.close()


def test_non_consecutive_page_is_rejected(source: Path, replica_folder: Path) -> None:
    first, second = (read_page(source, "run", after, most_events=10) for after in (0, 10))
    assert first
    assert second
    replica = Replica(replica_folder, "run")
    with pytest.raises(StoreError, match="sent changes 11 to 20, but the last stored change is 0"):
        replica.apply(second.content)
    assert replica.apply(first.content) == 10
    assert replica.apply(second.content) == 20
    assert replica.apply(first.content) == 20
    replica.close()


def test_page_with_gap_or_of_another_run_is_rejected(source: Path, replica_folder: Path) -> None:
    replica = Replica(replica_folder, "run")
    with pytest.raises(StoreError, match="the last stored change is"):
        replica.apply(tampered_page(source, "DELETE FROM events WHERE seq = 3"))
    for sql, words in (
        ("UPDATE about SET run_id = 'other'", "another run"),
        ("UPDATE about SET version = 2", "another run or version"),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END", "tables"),
        ("CREATE VIEW v AS SELECT 1", "tables"),
        ("DROP TABLE labels; CREATE VIEW labels AS SELECT 1", "tables"),
        ("ALTER TABLE calls ADD COLUMN more TEXT", "tables"),
        ("UPDATE events SET kind = NULL", "the number or kind of event"),
        ("UPDATE trajectories SET body = x'00' WHERE body NOT NULL", "damaged"),
        ("UPDATE trajectories SET id = 'a'", "UNIQUE"),
    ):
        with pytest.raises(StoreError, match=words):
            replica.apply(tampered_page(source, sql))
    assert replica.seq == 0
    catch_up(source, replica)
    replica.close()
    assert contents(replica_folder / DATABASE) == contents(source)


def tampered_page(source: Path, sql: str) -> bytes:
    """Page content tampered with by `sql`."""
    page = read_page(source, "run", 0)
    assert page
    db = apsw.Connection(":memory:")
    db.deserialize("main", zlib.decompress(page.content))
    db.execute(sql)
    content = db.serialize("main")
    db.close()
    return zlib.compress(content, 1)


def test_damaged_page_stores_nothing(source: Path, replica_folder: Path) -> None:
    """Pages cut or with a wrong byte anywhere, before or after compression, store nothing."""
    page = read_page(source, "run", 0)
    assert page
    replica, rng = Replica(replica_folder, "run"), Random(1)
    decompressed = zlib.decompress(page.content)
    for _ in range(40):
        offset = rng.randrange(len(page.content))
        for damaged in (page.content[:offset], flip_byte(page.content, offset)):
            if decompresses_to(
                damaged, decompressed
            ):  # a different back-reference may decompress to the same bytes
                continue
            with pytest.raises(StoreError):
                replica.apply(damaged)
    for _ in range(40):  # with a valid checksum the structure must still be checked
        damaged = flip_byte(decompressed, rng.randrange(len(decompressed)))
        before = contents(replica_folder / DATABASE)
        try:
            replica.apply(zlib.compress(damaged, 1))
        except StoreError:
            assert contents(replica_folder / DATABASE) == before
        else:  # damage within the text of a row
            break
    for damaged in (b"", b"no page", zlib.compress(b""), zlib.compress(b"no page" * 900)):
        with pytest.raises(StoreError):
            replica.apply(damaged)
    replica.close()


def decompresses_to(page: bytes, decompressed: bytes) -> bool:
    try:
        return zlib.decompress(page) == decompressed
    except zlib.error:
        return False


def flip_byte(content: bytes, offset: int) -> bytes:
    return content[:offset] + bytes((content[offset] ^ 0xFF,)) + content[offset + 1 :]


def test_search_text_ends_at_the_real_end_of_messages() -> None:
    """Such text inside a tool call or a message, and bodies larger than one decompression step."""
    arguments = {"a": [1], "branches": [2], "then": "found"}
    content = '],"branches":[ lisbon'
    message = Message(role="assistant", content=content, tool_calls=[{"function": arguments}])
    long = Message(role="user", content=f"{'refund ' * 9000} garden")
    one = RunSimulator(Random(1)).trajectory(("train", 1, 0), 0)
    for number, messages in enumerate(([message], [long, message], [message, long], [long])):
        named = one.model_copy(update={"id": str(number), "messages": messages})
        body = zlib.compress(named.model_dump_json().encode(), 1)
        columns = search_text(named.model_dump())  # type: ignore[arg-type]
        assert json.loads(searched_columns(body)) == list(columns)


CHILD = """
import sys
from pathlib import Path
from engine.remote.mirror.pages import read_page
from engine.remote.mirror.replica import Replica
replica = Replica(Path(sys.argv[2]), "run")
print("started", flush=True)
while page := read_page(Path(sys.argv[1]), "run", replica.seq, most_events=4):
    replica.apply(page.content)
"""


def test_killed_replica_resumes_without_damage(source: Path, replica_folder: Path) -> None:
    seqs = [0]
    for _ in range(4):
        argv = [sys.executable, "-c", CHILD, str(source), str(replica_folder)]
        child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        with child.stdout as out:
            assert out.readline() == b"started\n"
            time.sleep(0.005 * len(seqs))
            child.kill()
            child.wait()
        replica = Replica(replica_folder, "run")
        seqs.append(replica.seq)
        replica.close()
    assert seqs == sorted(seqs)
    replica = Replica(replica_folder, "run")
    assert replica._db.execute("PRAGMA integrity_check").get == "ok"
    catch_up(source, replica)
    replica.close()
    assert contents(replica_folder / DATABASE) == contents(source)
