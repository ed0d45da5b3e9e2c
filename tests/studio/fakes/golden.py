"""Golden event logs: stored runs which every studio version must be able to read.

`python -m tests.studio.fakes.golden` rewrites them.
"""

from pathlib import Path

from engine.protocol.events import run as e
from tests.studio.fakes.made_backends import BackendRun
from tests.studio.fakes.made_evaluation import made_evaluation
from tests.studio.fakes.made_sft import sft_run
from tests.studio.fakes.simulated_run import MEMORY, SMALL, Simulation

GOLDEN = Path(__file__).parents[2] / "engine" / "protocol" / "golden"


def golden() -> dict[str, list[e.Event]]:
    """Return the event logs by name."""
    finished = Simulation(train=SMALL)
    finished.begin()
    for step in range(1, 7):
        finished.step(step)
    finished.end(6)
    failed = Simulation(train=SMALL, seed=8)
    failed.begin()
    for step in range(1, 4):
        failed.step(step)
    list(failed.rollouts(4))
    failed.fail(4)
    return {
        "finished": finished.made.events,
        "failed": failed.made.events,
        "resumed": _resumed(),
        "baseline": _baseline(),
        "extended": _extended(),
        "evaluation": _evaluation(),
        "served": _served(),
        "outside": _outside(),
        "taught": sft_run(done=40, clock=1_790_000_000.0).events,
    }


def _resumed() -> list[e.Event]:
    run = Simulation(train=SMALL, seed=9)
    run.begin()
    for step in range(1, 4):
        run.step(step)
    run.made.say(e.WorkerRestarted(worker="policy", attempt=1, problem=MEMORY))
    run.made.say(e.PauseRequested(step=3))
    run.made.say(e.RunPaused(step=3), 40)
    run.made.say(e.RunContinued(step=3))
    run.made.say(e.RunStopped(step=3, reason="asked to stop"))
    run.made.say(e.RunStarted(spec=run.made.spec, resumed_from=2, device="CPU · 2 cores"), 60)
    run.made.say(e.RunExtended(steps=8))
    for step in range(3, 6):
        run.step(step)
    return run.made.events


def _served() -> list[e.Event]:
    """Run sampled by a server that was restarted."""
    run = BackendRun("served", train=SMALL)
    run.begin()
    for step in (1, 2):
        run.step(step)
        run.revive(step)
    run.end(2)
    return run.made.events


def _outside() -> list[e.Event]:
    """Run whose script makes the rollouts and logs its own metrics."""
    run = Simulation(name="agent-001", train=SMALL, kind="outside", seed=12)
    run.made.spec = run.made.spec.model_copy(update={"source": "openpipe-art 0.5.18"})
    run.begin()
    for step in (1, 2, 3):
        run.step(step)
        values = {"train/max_value": 16.0 + 8 * step, "val/max_value": 14.0 + 6 * step}
        values |= {"train/moves": 30.0 + step, "data/step_num_groups_submitted": 4.0}
        run.made.say(e.MetricsLogged(step=step, split="train", values=values))
    run.made.say(e.RunStopped(step=3, reason="The script has ended."))
    return run.made.events


def _extended() -> list[e.Event]:
    run = Simulation(train=SMALL, seed=11)
    run.begin()
    for step in (1, 2):
        list(run.rollouts(step))
        run.extend(step)
        run.finish(step)
    return run.made.events


def _evaluation() -> list[e.Event]:
    return made_evaluation(scenarios=6, attempts=1).events


def _baseline() -> list[e.Event]:
    run = Simulation(name="first-look", train=SMALL, kind="baseline", seed=10)
    run.begin()
    run.made.say(e.RunFinished(step=0, seconds=12.0))
    return run.made.events


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, log in golden().items():
        lines = "".join(f"{e.encode(event)}\n" for event in log)
        (GOLDEN / f"{name}.jsonl").write_text(lines, encoding="utf-8")
