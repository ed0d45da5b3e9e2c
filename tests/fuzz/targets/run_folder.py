"""Damaged or foreign run folders: listed, read and repaired (`library`, `store.repair`)."""

import asyncio
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import RunStarted
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.runs import TrajectoryQuery
from engine.server.services.library import Library
from engine.server.services.repair import repair
from engine.server.services.summaries import summarise
from engine.storage.checkpoints import checkpoint
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, SPEC, write_spec
from tests.engine.remote.mirror.story import RunSimulator

REFUSALS = (AtelierError,)
RUN = "01JD5MAMBERKESTREL00000000"
MANIFEST = Path("checkpoints/step-000003/manifest.json")
FILES = (DATABASE, SPEC, str(MANIFEST))


@cache
def whole() -> dict[str, bytes]:
    """Return the files of a small run."""
    with tempfile.TemporaryDirectory(prefix="fuzz-run-") as place:
        folder = Path(place) / RUN
        folder.mkdir()
        spec = RunSpec(
            id=RUN, name="r", project="p", started_at=1.0, config=ProjectConfig(), model_path=""
        )
        write_spec(folder, spec)

        async def fill() -> None:
            writer = RunWriter(folder / DATABASE, RUN)
            await writer.say(RunStarted(spec=spec))
            await RunSimulator(Random(5)).perform(writer, 30)
            writer.close()

        asyncio.run(fill())
        files = {name: (folder / name).read_bytes() for name in (DATABASE, SPEC)}
    return files | {FILES[2]: b'{"files": {"adapter/a": {"bytes": 3, "sha256": "00"}}, "step": 3}'}


whole()  # before the first execution, during which nothing may be written


def seeds() -> list[bytes]:
    """The first byte determines which file it becomes."""
    return [bytes([number]) + whole()[name] for number, name in enumerate(FILES)]


def mutate(seed: bytes, rng: Random) -> bytes:
    """Change bytes of a page, a page, or the end.

    The database stays large, so that few changes matter.
    """
    data = bytearray(seed[1:])
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        place, size = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 64, 4096))
        data[place : place + size] = rng.choice((bytes(size), rng.randbytes(size), b"\xff" * size))
    if rng.random() < 0.1:
        del data[rng.randrange(len(data) + 1) :]
    return seed[:1] + bytes(data)


def execute(data: bytes, folder: Path) -> None:
    run = folder / "project" / "runs" / RUN
    (run / MANIFEST).parent.mkdir(parents=True)
    which = FILES[data[0] % len(FILES)] if data else FILES[0]
    for name, content in whole().items():
        (run / name).write_bytes(data[1:] if name == which else content)
    (listed,) = Library(folder).runs(folder / "project")
    assert listed.id == RUN
    assert not checkpoint.verify(run / MANIFEST.parent)
    try:
        summarise(run)
        reader = RunReader(run / DATABASE)
        try:
            page = reader.trajectories(TrajectoryQuery())
            for one in page.items[:20]:
                reader.trajectory(one.id)
            reader.labels()
            reader.checkpoints()
        finally:
            reader.close()
    except AtelierError:
        pass
    repair(run)
    assert summarise(run).id == RUN
