"""Routes of the fake engine for sweeps: one sweep of twelve trials, and plans of new ones."""

import math
import random
from typing import Any

from starlette.requests import Request

from engine.protocol.config.sweep import Range, SweepConfig
from engine.protocol.records.runs import Interval
from engine.protocol.records.sweeps import SweepPlan, SweepRun, SweepTrial, SweepView
from engine.protocol.requests.sweeps import ActOnSweep, StartSweep

SPACE = {
    "train.lr": Range(low=1e-5, high=1e-3, log=True),
    "train.group_size": (4, 8, 16),
    "train.algorithm.preset": ("grpo", "gspo"),
}
STEPS = 40


def make_sweep(project: str, trials: int = 12, name: str = "brisk-heron") -> SweepView:
    """Make a running sweep whose result depends on the learning rate most."""
    dice = random.Random(4)
    rows = []
    for number in range(1, trials + 1):
        lr = 10 ** dice.uniform(-5, -3)
        values: dict[str, Any] = {
            "train.lr": lr,
            "train.group_size": dice.choice((4, 8, 16)),
            "train.algorithm.preset": dice.choice(("grpo", "gspo")),
        }
        mean = 0.75 - 0.12 * (math.log10(lr) + 3.8) ** 2 + dice.gauss(0, 0.03)
        state: Any = "running" if number == trials else "pruned" if mean < 0.5 else "finished"
        step = {"running": 12, "pruned": 10}.get(state, STEPS)
        result = Interval(mean=mean, low=mean - 0.06, high=mean + 0.06, count=40)
        runs = (SweepRun(seed=0, run_id=f"01JD5TILES{number % 5}", step=step, steps=STEPS),)
        rows.append(SweepTrial(number=number, values=values, runs=runs, state=state, result=result))
    done = [one for one in rows if one.state == "finished" and one.result]
    best = max(done, key=lambda one: one.result.mean if one.result else 0.0)
    steps_done = sum(run.step for one in rows for run in one.runs)
    return SweepView(
        id="01JD5SWEEP0000000000000001", name=name, project="tiles", project_path=project,
        path=f"{project}/sweeps/x", state="running", started_at=1.0, metric="validation/reward",
        method="tpe", trials_planned=20, trials_ended=trials - 1, best=best.number,
        result=best.result, revision=1, sweep=SweepConfig(), space=SPACE, trials=rows,
        importance={"train.lr": 0.71, "train.group_size": 0.19, "train.algorithm.preset": 0.1},
        steps_done=steps_done, steps_planned=20 * STEPS, steps_saved=90, seconds=5400.0,
    )  # fmt: skip


class FakeSweeps:
    """Sweeps of the fake engine; `actions` and `started` are those asked for."""

    def __init__(self) -> None:
        self.views: list[SweepView] = []
        self.actions: list[str] = []
        self.started: list[StartSweep] = []

    def routes(self) -> list[tuple[Any, ...]]:
        return [
            ("/sweeps", self._all, "GET", "POST"),
            ("/sweeps/plan", self._plan, "POST"),
            ("/sweeps/{sweep}", self._one, "GET", "POST"),
        ]

    async def _all(self, request: Request) -> Any:
        if request.method == "GET":
            path = request.query_params["project"]
            return [one for one in self.views if one.project_path == path]
        body = StartSweep.model_validate_json(await request.body())
        self.started.append(body)
        view = make_sweep(body.project, 2, "new-sweep")
        self.views.insert(0, view.model_copy(update={"id": "01JD5SWEEP0000000000000002"}))
        return self.views[0]

    async def _plan(self, request: Request) -> SweepPlan:
        body = StartSweep.model_validate_json(await request.body())
        seeds, steps = body.overrides["sweep.seeds"], body.overrides["train.steps"]
        return SweepPlan(
            sweep=SweepConfig(), space={"train.lr": (1e-5, 1e-4)}, metric="validation/reward",
            trials=2, seeds=seeds, steps=2 * seeds * steps,
        )  # fmt: skip

    async def _one(self, request: Request) -> SweepView:
        place = [one.id for one in self.views].index(request.path_params["sweep"])
        if request.method == "POST":
            action = ActOnSweep.model_validate_json(await request.body()).action
            self.actions.append(action)
            state = {"pause": "paused", "stop": "stopped", "resume": "running"}[action]
            self.views[place] = self.views[place].model_copy(update={"state": state})
        return self.views[place]
