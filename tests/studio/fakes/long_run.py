"""Run with very many steps in the studio's own store, without an engine."""

import random
import time

from engine.protocol.config.project import ProjectConfig
from engine.protocol.events import run as e
from engine.protocol.records.runs import Interval, RunSpec, RunSummary
from studio.services.session import Session
from tests.studio.fakes.made_metrics import drift, lengths, signs, use

RUN = "01JD5LONGRUN00000000000000"
TESTED_EVERY = 5
PHASES = ("step", "rolling_out", "training", "publishing", "judging")


def metrics(step: int, dice: random.Random) -> dict[str, float]:
    reward = {"reward/mean": dice.random(), "reward/part/rules": dice.random()}
    groups = {"groups/std_mean": dice.random(), "groups/no_signal": dice.random() / 4}
    speed = {"tokens_per_s/sample": dice.gauss(900, 30), "tokens_per_s/train": dice.gauss(500, 20)}
    seconds = {f"time_s/{phase}": dice.random() for phase in PHASES}
    update = {name: dice.random() for name in ("loss", "entropy", "grad_norm", "clip/high", "kl")}
    return {
        **reward, **groups, **speed, **seconds, **update, **lengths(step % 40), **drift(dice),
        **use(dice), **signs(dice), "lr": 1e-5, "unscored": 1.0, "trajectories": 64.0,
        "truncated": 0.02, "clip/low": 0.01,
    }  # fmt: skip


class LongRun:
    """Folds steps into the session's store like the event feed."""

    def __init__(self, session: Session, steps: int) -> None:
        self.session, self.seq, self.step = session, 0, 0
        self.dice = random.Random(1)
        config = ProjectConfig.model_validate({"train": {"steps": steps + 10}})
        spec = RunSpec(id=RUN, name="far-run", project="bench", started_at=time.time() - 1e6,
                       config=config, model_path="/none")  # fmt: skip
        session.runs.put(
            RunSummary(
                id=RUN,
                name="far-run",
                project="bench",
                project_path="/none",
                path="/none",
                kind="train",
                state="running",
                step=0,
                steps=steps,
                started_at=spec.started_at,
                changed_at=spec.started_at,
            )
        )
        self.say(e.RunStarted(spec=spec))
        for _ in range(steps):
            self.say_step()

    def say_step(self) -> None:
        self.step += 1
        self.say(e.StepStarted(step=self.step, groups=[]))
        self.say(e.StepFinished(step=self.step, metrics=metrics(self.step, self.dice)))
        if self.step % TESTED_EVERY == 0:
            reward = Interval(mean=0.5, low=0.4, high=0.6, count=8)
            self.say(
                e.ValidationFinished(
                    step=self.step, reward=reward, scenarios={}, unscored=0, seconds=1.0
                )
            )

    def say(self, event: e.Event) -> None:
        self.seq += 1
        at = self.session.runs.state(RUN).at or time.time() - 1e6
        stamped = event.model_copy(update={"run_id": RUN, "seq": self.seq, "at": at + 1})
        self.session.runs.fold(RUN, [stamped])
