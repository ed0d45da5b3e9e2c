"""Pages of changes of a remote run, with mutated bytes, rows and bodies (`Replica.apply`).

A rejected page leaves the copy unchanged; stored data can be read.
"""

import asyncio
import contextlib
import random
import tempfile
import zlib
from functools import cache
from pathlib import Path

import apsw

from engine.protocol.problems import StoreError
from engine.protocol.requests.runs import TrajectoryQuery
from engine.remote.mirror.pages import read_page
from engine.remote.mirror.replica import Replica
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE
from tests.engine.remote.mirror.story import RunSimulator
from tests.fuzz.mutation import mutate as change

REFUSALS = (StoreError,)
KINDS = ("run.started", "run.finished", "run.failed", "step.finished", "validation.finished")
COLUMNS = (
    ("events", "body"),
    ("events", "kind"),
    ("trajectories", "body"),
    ("trajectories", "summary"),
    ("groups", "summary"),
    ("calls", "body"),
    ("verdicts", "body"),
    ("labels", "body"),
    ("checkpoints", "record"),
)
BOMBS = (b"", zlib.compress(b""), zlib.compress(b"[" * 10**6), zlib.compress(b" " * 2**22)[:-3])


@cache
def seeds() -> list[bytes]:
    """Return unpacked pages of runs with various events."""
    pages = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            file = Path(folder) / f"{number}.db"

            async def write(file: Path = file, number: int = number) -> None:
                writer = RunWriter(file, "run")
                await RunSimulator(random.Random(number)).perform(writer, 25)
                writer.close()

            asyncio.run(write())
            page = read_page(file, "run", 0)
            assert page
            pages.append(zlib.decompress(page.content))
    return pages


def mutate(seed: bytes, rng: random.Random) -> bytes:
    """Change bytes of the packed page, of the file within, or of a value in a row."""
    chance = rng.random()
    if chance < 0.1:
        return change(zlib.compress(seed, 1), rng)
    if chance < 0.4:
        return zlib.compress(change(seed, rng), 1)
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        db.deserialize("main", seed)
        for _ in range(rng.choice((1, 1, 3))):
            _change_row(db, rng)
        return zlib.compress(db.serialize("main"), 1)


def _change_row(db: apsw.Connection, rng: random.Random) -> None:
    table, column = rng.choice(COLUMNS)
    rows = db.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} NOT NULL").fetchall()
    if not rows:
        return
    row, value = rng.choice(rows)
    new: object
    if isinstance(value, bytes):
        body = b""
        with contextlib.suppress(zlib.error):  # already changed
            body = zlib.decompress(value)
        new = rng.choice((change(value, rng), zlib.compress(change(body, rng)), *BOMBS))
    else:
        new = change(str(value).encode(), rng).decode(errors="replace")
    with contextlib.suppress(apsw.ConstraintError):
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))


def execute(data: bytes, folder: Path) -> None:
    replica = Replica(folder, "run")
    try:
        try:
            replica.apply(data if data[:1] == b"\x78" else zlib.compress(data, 1))
        except StoreError:
            assert replica.seq == 0
            assert replica._db.execute("SELECT count(*) FROM trajectories").get == 0
            raise
        assert replica._db.execute("PRAGMA quick_check").get == "ok"
    finally:
        replica.close()
    reader = RunReader(folder / DATABASE)
    try:
        reader.events_of(*KINDS)
        reader.trajectories(TrajectoryQuery())
        reader.groups(TrajectoryQuery())
        reader.labels()
        reader.checkpoints()
    finally:
        reader.close()
