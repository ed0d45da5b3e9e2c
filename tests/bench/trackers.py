"""Cost of trackers that hang: the same run without trackers and with three that never respond,
alternating.

`python -m tests.bench.trackers [PAIRS]`
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from engine.environments import python_of
from engine.protocol.events.run import RunFinished, RunStarted, StepFinished
from tests.engine_http.conftest import (
    Engine,
    make_project,
    start_engine,
    stop_engine,
    temporary_home,
)
from tests.support.otlp_collector import run_collector
from tests.support.tiny_model import make_tiny_model

HANGING = """
[track.otel]
on = true
endpoint = "{url}"
[track.langfuse]
on = true
host = "{url}"
[track.mlflow]
on = true
uri = "{url}"
"""
STEPS = 30


def measure(engine: Engine, project: Path) -> tuple[float, float]:
    """Return the seconds of the whole run, and the median of its steps."""
    run = engine.train(project, **{"train.steps": STEPS})
    events = engine.wait(run)
    started_at = next(e.at for e in events if isinstance(e, RunStarted))
    assert isinstance(events[-1], RunFinished), events[-1]
    times = [e.metrics["time_s/step"] for e in events if isinstance(e, StepFinished)]
    return events[-1].at - started_at, statistics.median(times)


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    with tempfile.TemporaryDirectory() as scratch, run_collector() as collector:
        collector.mood = "silence"
        folder = Path(scratch)
        model = make_tiny_model(folder / "tiny")
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        with temporary_home(folder) as workspace:
            os.environ["XDG_CACHE_HOME"] = cache  # the trackers' environments are there
            for name in ("otel", "mlflow"):
                python_of(name)
            plain = make_project(workspace / "plain", model)
            toml = HANGING.format(url=collector.url)
            tracked = make_project(workspace / "told", model, toml=toml)
            engine = start_engine(workspace)
            try:
                compare(engine, plain, tracked, pairs)
            finally:
                collector.over.set()
                stop_engine(engine)
        print(f"requests without a response: {collector.asked}")


def compare(engine: Engine, plain: Path, tracked: Path, pairs: int) -> None:
    engine.call(lambda c: c.lend_tracker_keys({"langfuse": "pk:sk"}))
    ratios: list[tuple[float, float]] = []
    for pair in range(pairs):
        order = (plain, tracked) if pair % 2 else (tracked, plain)
        seconds = {project: measure(engine, project) for project in order}
        whole, step = (a / b for a, b in zip(seconds[tracked], seconds[plain], strict=True))
        ratios.append((whole, step))
        print(f"{seconds[plain][0]:6.2f} s without, {seconds[tracked][0]:6.2f} s with: {whole:.3f}")
    print(f"whole run, median ratio {statistics.median(r for r, _ in ratios):.3f}")
    print(f"one step, median ratio  {statistics.median(r for _, r in ratios):.3f}")


if __name__ == "__main__":
    main()
