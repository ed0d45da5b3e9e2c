"""The copy of a run: whatever was written and however it came in pieces, it equals its source."""

import asyncio
import inspect
import itertools
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
from engine.protocol.records.runs import Message
from engine.remote.mirror.pages import ROWS, SPEAKS, read_page
from engine.remote.mirror.replica import Replica, search_text_of
from engine.storage.run_db.copy import copy_until
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import RunWriter, searchable
from engine.storage.run_folder.run import DATABASE
from tests.engine.remote.mirror.story import MOVES, TABLES, Story, contents

ROOT = Path(__file__).parents[4]


def write(file: Path, story: Story, times: int, run_id: str = "run") -> None:
    async def work() -> None:
        writer = RunWriter(file, run_id)
        await story.go_on(writer, times)
        writer.close()

    asyncio.run(work())


def catch_up(file: Path, replica: Replica, run_id: str = "run", **bounds: int) -> list[bytes]:
    pages = []
    while page := read_page(file, run_id, replica.seq, **bounds):
        assert replica.apply(page.content) == replica.seq == page.last
        pages.append(page.content)
    return pages


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The database of a run in which 120 things have happened."""
    write(tmp_path / "far.db", Story(Random(7)), 120)
    return tmp_path / "far.db"


@pytest.fixture
def home(tmp_path: Path) -> Path:
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
def test_every_table_equals_its_source(seed: int, parts: list[tuple[int, int, int]]) -> None:
    """Between the parts of a run as much is fetched as comes with a few pages, some of it twice."""
    with tempfile.TemporaryDirectory() as folder:
        far, home = Path(folder) / "far.db", Path(folder)
        story, replica = Story(Random(seed)), Replica(home, "run")
        for times, most_events, most_bytes in parts:
            write(far, story, times)
            for _ in range(3):
                bounds = {"most_events": most_events, "most_bytes": most_bytes}
                if page := read_page(far, "run", replica.seq, **bounds):
                    replica.apply(page.content)
                    assert replica.apply(page.content) == page.last
        catch_up(far, replica)
        replica.close()
        assert contents(home / DATABASE) == contents(far)


def test_a_branch_and_what_it_has_from_its_parent(far: Path, home: Path) -> None:
    """Rows that came with the copy are spoken of by events of the branch."""
    branch = far.parent / "branch.db"
    copy_until(far, branch, "branch", 2)
    inherited = contents(branch)["calls"]
    assert inherited
    assert {row[4] for row in inherited} == {0}
    write(branch, Story(Random(8)), 30, "branch")
    replica = Replica(home, "branch")
    catch_up(branch, replica, "branch", most_events=7)
    replica.close()
    assert contents(home / DATABASE) == contents(branch)


def test_nothing_can_be_added_that_is_not_mirrored(tmp_path: Path) -> None:
    """A new table needs a place in pages, a new method of the writer a move in the story."""
    db = open_writer(tmp_path / "run.db")
    found = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    db.close()
    plain = {name for name in found if not name.startswith("transcripts")}
    assert plain == {"events", *ROWS} == set(TABLES)
    methods = inspect.getmembers(RunWriter, inspect.iscoroutinefunction)
    assert {name for name, _ in methods if not name.startswith("_")} == set(MOVES)
    kinds = {one.model_fields["kind"].default for one in run.Event.__args__}
    assert set(SPEAKS) <= kinds
    assert set(itertools.chain(*SPEAKS.values())) == set(ROWS)


def test_only_events_that_bring_no_rows_are_left_out_of_the_table(tmp_path: Path) -> None:
    """What each kind has written, seen by its changes to the file, is what SPEAKS says."""
    story, seen = Story(Random(3)), dict.fromkeys(SPEAKS, frozenset[str]())

    async def work() -> None:
        writer = RunWriter(tmp_path / "run.db", "run")
        for move in [*MOVES.values()] * 4:
            before, last = contents(tmp_path / "run.db"), writer.seq
            await move(story, writer)
            after = contents(tmp_path / "run.db")
            kind = str(after["events"][last][1])
            changed = {name for name in ROWS if after[name] != before[name]}
            seen[kind] = seen.get(kind, frozenset()) | changed
        writer.close()

    asyncio.run(work())
    assert all(changed <= set(SPEAKS.get(kind, ())) for kind, changed in seen.items()), seen
    assert all(seen[kind] == set(tables) for kind, tables in SPEAKS.items()), seen


def test_pages_are_bounded(far: Path, home: Path) -> None:
    by_count = read_page(far, "run", 5, most_events=7)
    assert by_count
    assert (by_count.last, by_count.known) == (12, 120)
    replica = Replica(home, "run")
    small = catch_up(far, replica, most_bytes=1)
    assert len(small) == 120  # always at least one event
    assert read_page(far, "run", 120) is None
    replica.close()


def test_a_page_that_does_not_follow_is_refused(far: Path, home: Path) -> None:
    first, second = (read_page(far, "run", after, most_events=10) for after in (0, 10))
    assert first
    assert second
    replica = Replica(home, "run")
    with pytest.raises(StoreError, match="Changes 11 to 20 do not follow 0"):
        replica.apply(second.content)
    assert replica.apply(first.content) == 10
    assert replica.apply(second.content) == 20
    assert replica.apply(first.content) == 20
    replica.close()


def test_a_page_with_a_hole_or_of_another_run_is_refused(far: Path, home: Path) -> None:
    replica = Replica(home, "run")
    with pytest.raises(StoreError, match="do not follow"):
        replica.apply(changed(far, "DELETE FROM events WHERE seq = 3"))
    for sql, words in (
        ("UPDATE about SET run_id = 'other'", "another run"),
        ("UPDATE about SET version = 2", "another run or version"),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END", "tables"),
        ("CREATE VIEW v AS SELECT 1", "tables"),
        ("DROP TABLE labels; CREATE VIEW labels AS SELECT 1", "tables"),
        ("ALTER TABLE calls ADD COLUMN more TEXT", "tables"),
        ("UPDATE events SET kind = NULL", "has another number or kind"),
        ("UPDATE trajectories SET body = x'00' WHERE body NOT NULL", "damaged"),
        ("UPDATE trajectories SET id = 'a'", "UNIQUE"),
    ):
        with pytest.raises(StoreError, match=words):
            replica.apply(changed(far, sql))
    assert replica.seq == 0
    catch_up(far, replica)
    replica.close()
    assert contents(home / DATABASE) == contents(far)


def changed(far: Path, sql: str) -> bytes:
    """A page that somebody has tampered with."""
    page = read_page(far, "run", 0)
    assert page
    db = apsw.Connection(":memory:")
    db.deserialize("main", zlib.decompress(page.content))
    db.execute(sql)
    content = db.serialize("main")
    db.close()
    return zlib.compress(content, 1)


def test_damaged_bytes_store_nothing(far: Path, home: Path) -> None:
    """Cut anywhere, or with a wrong byte anywhere, on the wire or before it was packed."""
    page = read_page(far, "run", 0)
    assert page
    replica, dice = Replica(home, "run"), Random(1)
    plain = zlib.decompress(page.content)
    for _ in range(40):
        place = dice.randrange(len(page.content))
        for bad in (page.content[:place], flipped(page.content, place)):
            if unpacks_to(bad, plain):  # another distance into the same zeros says the same
                continue
            with pytest.raises(StoreError):
                replica.apply(bad)
    for _ in range(40):  # a checksum over damage says nothing: the form must hold all the same
        bad = flipped(plain, dice.randrange(len(plain)))
        home_now = contents(home / DATABASE)
        try:
            replica.apply(zlib.compress(bad, 1))
        except StoreError:
            assert contents(home / DATABASE) == home_now
        else:  # within the text of a row
            break
    for bad in (b"", b"no page", zlib.compress(b""), zlib.compress(b"no page" * 900)):
        with pytest.raises(StoreError):
            replica.apply(bad)
    replica.close()


def unpacks_to(page: bytes, plain: bytes) -> bool:
    try:
        return zlib.decompress(page) == plain
    except zlib.error:
        return False


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes((content[place] ^ 0xFF,)) + content[place + 1 :]


def test_words_that_look_like_the_end_of_the_messages() -> None:
    """Inside of a call, or of a text; and bodies larger than what is unpacked at once."""
    arguments = {"a": [1], "branches": [2], "then": "found"}
    told = '],"branches":[ lisbon'
    message = Message(role="assistant", content=told, tool_calls=[{"function": arguments}])
    long = Message(role="user", content=f"{'refund ' * 9000} garden")
    one = Story(Random(1)).attempt(("train", 1, 0), 0)
    for number, messages in enumerate(([message], [long, message], [message, long], [long])):
        named = one.model_copy(update={"id": str(number), "messages": messages})
        body = zlib.compress(named.model_dump_json().encode(), 1)
        assert search_text_of(body) == searchable(named.model_dump())  # type: ignore[arg-type]


CHILD = """
import sys
from pathlib import Path
from engine.remote.mirror.pages import read_page
from engine.remote.mirror.replica import Replica
replica = Replica(Path(sys.argv[2]), "run")
print("begun", flush=True)
while page := read_page(Path(sys.argv[1]), "run", replica.seq, most_events=4):
    replica.apply(page.content)
"""


def test_killed_while_it_stores_it_goes_on(far: Path, home: Path) -> None:
    seqs = [0]
    for _ in range(4):
        argv = [sys.executable, "-c", CHILD, str(far), str(home)]
        child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        with child.stdout as out:
            assert out.readline() == b"begun\n"
            time.sleep(0.005 * len(seqs))
            child.kill()
            child.wait()
        replica = Replica(home, "run")
        seqs.append(replica.seq)
        replica.close()
    assert seqs == sorted(seqs)
    replica = Replica(home, "run")
    assert replica._db.execute("PRAGMA integrity_check").get == "ok"
    catch_up(far, replica)
    replica.close()
    assert contents(home / DATABASE) == contents(far)
