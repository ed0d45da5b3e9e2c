"""Time until a label is acknowledged.

`python -m tests.bench.labels [COUNT] [LABELS]`

A run.db with 100,000 trajectories to which an active run keeps writing: a trajectory every 5 ms,
each in a transaction of its own. A label is checked, computed, committed with fsync and announced.
"""

import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import GroupSummary, RunSpec
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.run_folder.run import Run, write_spec
from engine.training.labels.service import LabelService
from tests.bench.store import fill_store
from tests.engine.storage.run_db.test_store import trajectory

PROMISED_MS = 50


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    labels = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "project" / "runs" / "run"
        place.mkdir(parents=True)
        fill_store(place / "run.db", count)
        config = ProjectConfig()
        spec = RunSpec(id="run", name="r", project="p", started_at=0, config=config, model_path="")
        write_spec(place, spec)
        run = Run(place, spec, lambda tick: None)
        writing = asyncio.create_task(keep_writing(run, count))
        groups = run.reader.groups(TrajectoryQuery(split="train", limit=labels)).items
        labeller = LabelService(run)
        times = [await time_label(labeller, run, group) for group in groups]
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        run.close()
    times.sort()
    worst = times[round(0.95 * (len(times) - 1))]
    print(
        f"label acknowledged: median {statistics.median(times):.1f} ms, 95 % {worst:.1f} ms "
        f"(at most {PROMISED_MS}), over {count} trajectories"
    )


async def keep_writing(run: Run, first: int) -> None:
    for number in itertools.count(first + 1):
        await run.writer.add_trajectory(trajectory(number))
        await asyncio.sleep(0.005)


async def time_label(labeller: LabelService, run: Run, group: GroupSummary) -> float:
    siblings = run.reader.stored(group.split, group.step, group.group)
    names = [sibling.id for sibling in siblings if sibling.reward is not None]
    words = (
        Word(kind="score", trajectory_id=names[0], value=0.9),
        Word(kind="best", trajectory_id=names[1]),
    )
    label = Label(id=f"{group.step}-{group.group}", step=group.step, group=group.group, words=words)
    started_at = time.perf_counter()
    await labeller.add(label.for_run(labeller.run_id))
    return (time.perf_counter() - started_at) * 1000


if __name__ == "__main__":
    asyncio.run(main())
