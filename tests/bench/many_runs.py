"""Project with thousands of small finished runs, and the time that the table of runs takes.

python -m tests.bench.many_runs [RUNS]
"""

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ModelConfig, ProjectConfig, TrainConfig
from engine.protocol.events.run import RunFinished, RunStarted, StepFinished, ValidationFinished
from engine.protocol.records.run_notes import RunNotes
from engine.protocol.records.runs import Interval, RunSpec
from engine.protocol.requests.run_table import RunQuery
from engine.runtime.ids import ulid
from engine.server.services.library import Library
from engine.server.services.run_table.summary_cache import SummaryCache
from engine.server.services.run_table.table import RunTable
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.notes import write_notes
from engine.storage.run_folder.run import DATABASE, SPEC
from engine.trust.projects import trust_project

DIFFERENT = 40
"""Number of different databases; runs share their content, since copies would fill the disk."""
WORDS = ("amber", "brisk", "calm", "dusty", "early", "frank", "grave", "hollow", "ivory", "jolly")
ANIMALS = ("ant", "bear", "crane", "deer", "eel", "fox", "goat", "heron", "ibis", "jay")


METRICS = (
    "entropy", "kl", "grad_norm", "clip/low", "clip/high", "groups/std_mean", "groups/no_signal",
    "tokens/completion_mean", "tokens_per_s/sample", "tokens_per_s/train", "ratio/mean",
    "ratio/p99", "logprob_gap/max", "unscored", "trajectories", "time_s/training",
    "time_s/rolling_out",
)  # fmt: skip


def make_runs(project: Path, count: int, steps: int = 30, seed: int = 1) -> Path:
    """Create a project with `count` finished runs of `steps` steps; returns its folder."""
    project.mkdir(parents=True)
    (project / "project.toml").write_text('name = "many"\n')
    trust_project(project)
    chance = random.Random(seed)
    patterns = project.parent / "patterns"
    databases = [_database(patterns / str(n), chance, steps) for n in range(min(DIFFERENT, count))]
    for number in range(count):
        spec = _spec(chance, number, steps)
        folder = project / "runs" / spec.id
        folder.mkdir(parents=True)
        (folder / SPEC).write_text(spec.model_dump_json())
        os.link(databases[number % len(databases)], folder / DATABASE)
        if number % 10 == 0:
            write_notes(folder, RunNotes(tags=(WORDS[number // 10 % 10],), note="a note"))
    return project


def add_long_runs(project: Path, count: int = 8, steps: int = 2000) -> list[str]:
    """Add `count` runs of `steps` steps to a project, the newest of all; returns their ids."""
    chance, ids = random.Random(5), []
    for number in range(count):
        spec = _spec(chance, 1_000_000 + number, steps)
        folder = project / "runs" / spec.id
        database = _database(folder, chance, steps)
        assert database.is_file()
        (folder / SPEC).write_text(spec.model_dump_json())
        ids.append(spec.id)
    return ids


def _spec(chance: random.Random, number: int, steps: int) -> RunSpec:
    train = TrainConfig(
        steps=steps,
        lr=chance.choice((1e-5, 3e-5, 1e-4)),
        group_size=chance.choice((4, 8, 16)),
        seed=number,
        algorithm=Algorithm(preset=chance.choice(("grpo", "gspo", "dapo"))),
    )
    config = ProjectConfig(model=ModelConfig(name="starter"), train=train)
    name = f"{chance.choice(WORDS)}-{chance.choice(ANIMALS)}-{number}"
    return RunSpec(
        id=ulid(), name=name, project="many", started_at=1.79e9 + 900.0 * number,
        config=config, model_path="/m",
    )  # fmt: skip


def _database(folder: Path, chance: random.Random, steps: int) -> Path:
    folder.mkdir(parents=True)
    spec = _spec(chance, 0, steps)

    async def fill() -> None:
        writer = RunWriter(folder / DATABASE, spec.id)
        await writer.say(RunStarted(spec=spec, device="CPU · 2 cores"))
        level, gain = chance.uniform(0.1, 0.5), chance.uniform(-0.002, 0.02)
        for step in range(1, steps + 1):
            mean = level + gain * step + chance.gauss(0, 0.02)
            metrics = {name: chance.random() for name in METRICS}
            metrics |= {"reward/mean": mean, "loss": chance.random(), "time_s/step": 4.0}
            await writer.say(StepFinished(step=step, metrics=metrics))
            if step % 10 == 0:
                reward = Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=20)
                await writer.say(
                    ValidationFinished(
                        step=step, reward=reward, scenarios={"s": mean}, unscored=0, seconds=1
                    )
                )
        await writer.say(RunFinished(step=steps, seconds=4.0 * steps))
        writer.close()

    asyncio.run(fill())
    return folder / DATABASE


QUERIES = {
    "newest": {},
    "by best": {"sort": "best"},
    "by model, ascending": {"sort": "model", "descending": False},
    "search": {"search": "gspo fox"},
    "by tag": {"tag": "calm"},
    "last page": {"offset": 9900},
}


async def measure(project: Path, again: Path) -> None:
    """Print the time of each query in ms: median and maximum of 20."""
    cache = SummaryCache(again)
    library = Library(project.parent, cache)
    table = RunTable(library, lambda run_id: library.summary(library.find(run_id)))
    begun = time.perf_counter()
    page = await table.page(RunQuery(project=str(project)), project)
    print(f"{page.runs:,} runs, first list: {time.perf_counter() - begun:.2f} s")
    for name, fields in QUERIES.items():
        query = RunQuery.model_validate({"project": str(project), **fields})
        times = []
        for _ in range(20):
            begun = time.perf_counter()
            page = await table.page(query, project)
            page.model_dump_json()
            times.append(1000 * (time.perf_counter() - begun))
        print(f"  {name:22} {statistics.median(times):6.1f} ms, at most {max(times):6.1f} ms")
    await table.close()
    cache.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_DATA_HOME"] = place
        begun = time.perf_counter()
        project = make_runs(Path(place) / "work" / "many", count)
        print(f"made in {time.perf_counter() - begun:.1f} s")
        for words in ("without a cache", "from the cache"):
            print(words)
            asyncio.run(measure(project, Path(place)))


if __name__ == "__main__":
    main()
