"""Simulated SFT run and demonstrations of a simulated project."""

import math
import random
import time

from engine.protocol.config.project import ProjectConfig, SftConfig, TrainConfig
from engine.protocol.events import run as e
from engine.protocol.events.checkpoints import CheckpointSaved
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import Problem
from engine.protocol.records.demonstrations import (
    BadLine,
    DemonstrationFile,
    Demonstrations,
    SupervisedPlan,
    Tally,
)
from engine.protocol.records.runs import Checkpoint, RunSpec
from tests.studio.fakes.simulated_run import Made

UPDATES, EVERY = 120, 20
LEARNED = Tally(examples=216, tokens=88_410, trained=21_604, longest=734)
HELD_OUT = Tally(examples=24, tokens=9_702, trained=2_391, longest=698)
GOOD = DemonstrationFile(
    path="demonstrations.jsonl",
    role="train",
    lines=232,
    forms={"messages": 218, "prompt and completion": 14},
    tally=Tally(examples=232, tokens=94_880, trained=23_112, longest=734),
)
GOLD = DemonstrationFile(
    path="gold.jsonl",
    role="gold",
    lines=8,
    forms={"messages": 8},
    tally=Tally(examples=8, tokens=3_232, trained=883, longest=512),
)
NOTHING = DemonstrationFile(path="demonstrations.jsonl", role="train")
REASONS = (
    (17, "The line has no assistant message to train on."),
    (88, "The demonstration has 2311 tokens; model.max_context is 1024."),
    (191, "The line is not valid JSON: Expecting ',' delimiter: line 1 column 402 (char 401)."),
)
BAD = GOOD.model_copy(
    update={
        "lines": 235,
        "bad_count": 3,
        "bad": [BadLine(file=GOOD.path, line=n, reason=words) for n, words in REASONS],
    }
)
REFUSED = Problem(
    code="demonstrations.bad_lines",
    message="3 of the 235 lines of demonstrations.jsonl cannot be used for training.",
    hint="Mend them, or learn without them.",
)


def demonstrations(bad: bool = False) -> Demonstrations:
    return Demonstrations(
        files=[BAD if bad else GOOD, GOLD],
        train=LEARNED,
        held_out=HELD_OUT,
        updates=UPDATES,
        problem=REFUSED if bad else None,
    )


def sft_run(done: int = UPDATES, name: str = "mellow-otter", clock: float | None = None) -> Made:
    """Return an SFT run whose held-out loss falls and rises slightly at the end."""
    dice, started_at = random.Random(3), time.time() - 400 if clock is None else clock
    config = ProjectConfig(
        name="inbox-scout", train=TrainConfig(steps=120), sft=SftConfig(validate_every=EVERY)
    )
    plan = SupervisedPlan(
        train=LEARNED, held_out=HELD_OUT, updates=UPDATES, files=[GOOD.path, GOLD.path], skipped=3
    )
    spec = RunSpec(
        id="01JD5SFT0000000000000000",
        name=name,
        kind="sft",
        project="inbox-scout",
        started_at=started_at,
        config=config,
        model_path="/models/smollm2-135m-instruct",
        supervised=plan,
    )
    made = Made(spec, clock=started_at)
    made.say(e.RunStarted(spec=spec, device="CPU · 2 cores"))
    made.say(
        e.PolicyLoaded(parameters=134_515_008, trainable=4_884_480, dtype="bfloat16", seconds=3.1)
    )
    for step in range(done + 1):
        if step:
            made.say(e.StepFinished(step=step, metrics=_metrics(step, dice)), 3.0)
        if step % EVERY == 0:
            _measure(made, step)
    if done == UPDATES:
        made.say(e.RunFinished(step=done, seconds=360, loss_first=2.61, loss_best=1.2))
    else:
        made.say(e.PhaseChanged(step=done, phase="training"))
    return made


def _loss(step: int) -> float:
    return 1.18 + 1.4 * math.exp(-step / 26) + max(0, step - 80) * 0.001


def _measure(made: Made, step: int) -> None:
    loss = _loss(step) + 0.03
    measured = LossMeasured(step=step, loss=loss, tokens=HELD_OUT.trained, examples=24, seconds=4.0)
    made.say(measured, 4.0)
    if step:
        checkpoint = Checkpoint(
            step=step,
            path=f"checkpoints/step-{step:06d}",
            bytes=58_600_000,
            at=made.clock,
            metrics={"validation/loss": loss},
        )
        made.say(CheckpointSaved(checkpoint=checkpoint))


def _metrics(step: int, dice: random.Random) -> dict[str, float]:
    rate = 2e-4 * min(step / 12, (121 - step) / 109)
    return {
        "loss": _loss(step) + dice.gauss(0, 0.12),
        "grad_norm": 1.4 * math.exp(-step / 60) + abs(dice.gauss(0, 0.1)),
        "entropy": 0.9 + 0.6 * math.exp(-step / 40) + dice.gauss(0, 0.02),
        "lr": rate,
        "epoch": step / 60,
        "tokens/trained": 360 + dice.gauss(0, 40),
        "tokens/forwarded": 1480 + dice.gauss(0, 90),
        "tokens_per_s/train": 121 + dice.gauss(0, 6),
        "goodput/train": 0.31 + dice.gauss(0, 0.01),
        "hardware/train": 0.36 + dice.gauss(0, 0.01),
        "time_s/step": 3.0,
    }
