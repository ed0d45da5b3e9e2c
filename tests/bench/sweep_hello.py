"""Steps that pruning saves in a sweep of the sample `hello`: 6 learning rates × 2 seeds.

`python -m tests.bench.sweep_hello`

Runs the sweep with successive halving, and without. Prints both tables, the saved share of steps,
and the best trial of each, which should have the same setting. Takes about 20 minutes on two cores.
"""

import os
import tempfile
import time
from pathlib import Path

from engine.cli.sweep_text import table_text
from engine.models.registry import find_model
from engine.protocol.records.sweeps import SweepView
from tests.engine_http.conftest import CACHE, start_engine, stop_engine, temporary_home
from tests.engine_http.test_sweep_hello import HOUR_S, SETTINGS, STARTER, make_hello
from tests.engine_http.test_sweeps import follow, start

LARGER = {
    "model.dtype": "auto",
    "train.steps": 8,
    "train.validate_every": 2,
    "train.validation_attempts": 4,
    "train.groups": 8,
    "train.group_size": 8,
    "sweep.first_validation": 2,
}


def main() -> None:
    views: dict[str, SweepView] = {}
    with tempfile.TemporaryDirectory() as folder, temporary_home(Path(folder)) as workspace:
        os.environ["XDG_CACHE_HOME"] = CACHE  # the starter model is there
        project = make_hello(workspace)
        settings = {**SETTINGS, **LARGER, "model.name": str(find_model(STARTER))}
        engine = start_engine(workspace)
        try:
            for prune in ("halving", "none"):
                started_at = time.monotonic()
                sweep = start(engine, project, **{**settings, "sweep.prune": prune})
                views[prune] = view = follow(engine, sweep, timeout_s=HOUR_S)
                seconds = time.monotonic() - started_at
                print(f"\nprune = {prune!r}: {view.steps_done} steps, {seconds:.0f} s")
                print(table_text(view), flush=True)
        finally:
            stop_engine(engine)
    pruned = views["halving"]
    share = pruned.steps_saved / pruned.steps_planned
    print(f"\npruning saved {pruned.steps_saved} of {pruned.steps_planned} steps ({share:.0%})")
    for prune, view in views.items():
        assert view.best is not None
        best = view.trials[view.best - 1]
        assert best.result is not None
        low, high = best.result.low, best.result.high
        print(f"best with prune = {prune!r}: {best.values}, {best.result.mean:.3f} [{low}, {high}]")


if __name__ == "__main__":
    main()
