"""Speed of the review queue with 10,000 trajectories, each scored by two judge models.

`python -m tests.bench.review [COUNT]`
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from engine.judge.calibration.review_candidates import review_queue
from engine.protocol.records.judging import Verdict
from engine.protocol.records.runs import GroupSummary
from engine.protocol.requests.review import ReviewQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.schema import open_writer
from engine.storage.run_db.writer import group_rows, summary_of, trajectory_rows
from tests.engine.storage.run_db.test_store import trajectory

SIZE = 8
PROMISED_MS = 300


def fill_judged(file: Path, count: int) -> None:
    """Write groups of 8 with rules, two judges of three passes, and advantages."""
    chance = random.Random(0)
    db = open_writer(file)
    with db:
        for first in range(0, count, SIZE):
            rewards = [round(chance.random(), 3) for _ in range(SIZE)]
            for index, reward in enumerate(rewards):
                one = trajectory(first + index, reward, "question " * 200)
                parts = {"rules": round(chance.random(), 3), "ruler": reward}
                one = one.model_copy(update={"parts": parts})
                for sql, values in trajectory_rows(one, summary_of(one)):
                    db.execute(sql, values)  # type: ignore[arg-type]
                for judge in ("openai/one", "openai/two"):
                    passes = [min(1.0, reward * chance.uniform(0.7, 1.2)) for _ in range(3)]
                    verdict = Verdict(
                        trajectory_id=one.id, judge=judge, rubric="r", score=passes[0],
                        passes=passes, reason="because of the answer " * 20,
                    )  # fmt: skip
                    row = (one.id, judge, "r", 1.0, verdict.model_dump_json())
                    db.execute("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?)", row)
            mean = statistics.fmean(rewards)
            group = GroupSummary(
                split="train", step=one.step, group=one.group, scenario_id="s", title="t",
                rewards=list(rewards), advantages=[reward - mean for reward in rewards], mean=mean,
                std=statistics.pstdev(rewards), signal=True,
            )  # fmt: skip
            for sql, values in group_rows(group):
                db.execute(sql, values)  # type: ignore[arg-type]
    db.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.db"
        fill_judged(file, count)
        reader = RunReader(file)
        times = []
        for _ in range(9):
            started_at = time.perf_counter()
            queue = review_queue(reader, ReviewQuery(), {})
            times.append((time.perf_counter() - started_at) * 1000)
        reader.close()
    print(
        f"review queue: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms (at "
        f"most {PROMISED_MS}), {queue.total} groups of {count} trajectories"
    )


if __name__ == "__main__":
    main()
