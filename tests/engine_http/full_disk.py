"""Run on a disk that fills up.

`python -m tests.engine_http.full_disk FOLDER MODEL`, with FOLDER as the mount point of a small
file system. Prints the outcome as JSON.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from engine.protocol.events.run import StepFinished
from engine.protocol.problems import AtelierError
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.runs import Command
from tests.engine_http.conftest import (
    Engine,
    make_project,
    start_engine,
    stop_engine,
    temporary_home,
)
from tests.engine_http.test_faults import stored_events


def main(folder: Path, model: Path) -> dict[str, object]:
    with temporary_home(folder) as workspace:
        engine = start_engine(workspace)
        try:
            return run_until_full(engine, folder, model)
        finally:
            stop_engine(engine)


def run_until_full(engine: Engine, folder: Path, model: Path) -> dict[str, object]:
    project = make_project(engine.workspace / "letters", model)
    overrides = {"train.steps": 400, "train.checkpoint_every": 1, "train.keep_last": None}
    run = engine.train(project, **overrides)
    engine.wait_for(run, "checkpoint.saved")
    before = stored_events(engine, run.id)
    filler = folder / "filler"
    fill_disk(filler)
    failed = wait_for_end(engine, run)
    wait_until_unchanged(Path(run.path))
    written, more = -1, folder / "more"
    while written != (written := fill_disk(more)):  # the end of the run frees some bytes
        time.sleep(0.5)
    tries = (try_label(engine, run) for _ in range(50))  # the first labels may fit into free pages
    refused = next((code for code in tries if code), "")
    filler.unlink()
    more.unlink()
    after = stored_events(engine, run.id)
    accepted = try_label(engine, run)
    done = max(e.step for e in read_events(engine, run) if isinstance(e, StepFinished))
    engine.call(lambda c: c.command(run.id, Command(action="resume", steps=done + 2)))
    finished = wait_for_end(engine, run)
    steps = [e.step for e in read_events(engine, run) if isinstance(e, StepFinished)]
    return {
        "failed": failed.problem.model_dump() if failed.problem else failed.state,
        "label_on_full": refused,
        "label_after": accepted,
        "lost": len(before.keys() - after.keys()),
        "state": finished.state,
        "steps_in_order": steps == list(range(1, done + 3)),
        "left": [p.name for p in (Path(run.path) / "checkpoints").glob(".writing-*")],
    }


def fill_disk(file: Path) -> int:
    """Write until the disk is full; return the size of the file."""
    with file.open("ab", buffering=0) as out:
        for size in (2**20, 4096, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue
        return out.tell()


def wait_until_unchanged(folder: Path) -> None:
    """Wait until no file of the run changes: its WAL is merged after its end."""
    sizes, last = {}, None
    while last is None or sizes != last:
        last = sizes
        time.sleep(0.5)
        sizes = {file.name: file.stat().st_size for file in folder.glob("run.db*")}


def wait_for_end(engine: Engine, run: RunSummary) -> RunSummary:
    for _ in range(600):
        now = engine.call(lambda c: c.run(run.id))
        if now.state not in ACTIVE_STATES:
            return now
        time.sleep(0.1)
    raise AssertionError("the run is still active")


def try_label(engine: Engine, run: RunSummary) -> str:
    """Add a label; return the problem code, or an empty string if it was accepted."""
    trajectory = engine.call(lambda c: c.siblings(run.id, "train", 1, 0)).trajectories[0]
    word = Word(kind="note", trajectory_id=trajectory.id, text="x" * 100_000)
    one = Label(id=f"l{time.time()}", split="train", step=1, group=0, words=[word], effect="none")
    try:
        engine.call(lambda c: c.add_label(run.id, one))
    except AtelierError as error:
        return error.problem.code
    return ""


def read_events(engine: Engine, run: RunSummary) -> list[object]:
    async def all_of(client) -> list[object]:  # type: ignore[no-untyped-def]
        events: list[object] = []
        try:
            async with asyncio.timeout(1.0):
                async for event in client.events(run.id):
                    events.append(event)
        except TimeoutError:
            pass
        return events

    return engine.call(all_of)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))) + "\n")
