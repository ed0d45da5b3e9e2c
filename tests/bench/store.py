"""Speed of the store with 100,000 trajectories.

`python -m tests.bench.store [COUNT]`

Prints medians in milliseconds of first page, sorting, filtering and search, and of opening a
group.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine.protocol.events.run import GroupScored, TrajectoryRecorded, encode
from engine.protocol.records.runs import GroupSummary
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import summary_of, trajectory_rows
from tests.engine.storage.run_db.test_store import trajectory

WORDS = ["garden", "invoice", "Lisbon", "flight", "search", "refund", "order", "board", "tile"]


def fill_store(file: Path, count: int) -> None:
    """Write trajectories the way the writer does, in one transaction."""
    db = open_writer(file)
    with db:
        for number in range(count):
            text = " ".join(WORDS[(number * k) % len(WORDS)] for k in range(1, 40))
            reward = None if number % 50 == 0 else number % 100 / 100
            record = trajectory(number, reward, text)
            summary = summary_of(record)
            for sql, values in trajectory_rows(record, summary):
                db.execute(sql, values)  # type: ignore[arg-type]
            event = TrajectoryRecorded(trajectory=summary, run_id="run", seq=number + 1)
            db.execute(
                "INSERT INTO events VALUES (?, ?, ?)", (number + 1, event.kind, encode(event))
            )
            if number % 8 == 7:
                add_group(db, record.step, record.group)
    db.close()


def add_group(db, step: int, group: int) -> None:  # type: ignore[no-untyped-def]
    summary = GroupSummary(
        split="train", step=step, group=group, scenario_id="s", title="t", rewards=[0.0, 1.0],
        mean=0.5, std=0.5, signal=True,
    )  # fmt: skip
    GroupScored(group=summary)
    row = ("train", step, group, int(group % 3 > 0), summary.model_dump_json())
    db.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?)", row)


def measure(file: Path, repeats: int = 7) -> dict[str, float]:
    """Return median milliseconds by name."""
    reader = RunReader(file)

    def page(**query: object) -> Callable[[], object]:
        filters = TrajectoryQuery(**query)  # type: ignore[arg-type]
        return lambda: reader.trajectories(filters)

    work: dict[str, Callable[[], object]] = {
        "first page": page(),
        "sort by reward": page(sort="reward"),
        "sort by title, last page": page(sort="title", offset=99_000),
        "filter unscored": page(state="unscored"),
        "filter steps": page(step=100, step_to=900, sort="advantage"),
        "search, rare": page(filter="flight Scenario 17"),
        "search, every row": page(filter="garden", sort="reward"),
        "filter no signal": page(signal=False),
        "filter figures and text": page(filter='reward < 0.2 and turns > 3 and text:"refund"'),
        "filter part": page(filter="part.rules > 0.5"),
        "filter without a tool": page(filter="not tool:search"),
        "names for completion": reader.filter_names,
        "groups": lambda: reader.groups(TrajectoryQuery()),
        "groups, search": lambda: reader.groups(TrajectoryQuery(filter="lisbon")),
        "open a group": lambda: reader.siblings("train", 700, 3),
    }
    result = {}
    for name, call in work.items():
        times = []
        for _ in range(repeats):
            started_at = time.perf_counter()
            call()
            times.append((time.perf_counter() - started_at) * 1000)
        result[name] = statistics.median(times)
    reader.close()
    return result


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.db"
        started_at = time.monotonic()
        fill_store(file, count)
        print(f"{count} trajectories in {time.monotonic() - started_at:.0f} s")
        for name, milliseconds in measure(file).items():
            print(f"{name:26} {milliseconds:8.1f} ms")


if __name__ == "__main__":
    main()
