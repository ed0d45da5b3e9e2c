"""Validation rollouts of a simulated run: a group per scenario and validation."""

import random

from engine.protocol.events import run as e
from engine.protocol.records.comparison import StepComparison
from engine.protocol.records.runs import GroupSummary, Interval, TrajectorySummary
from tests.studio.fakes.simulated_run import TITLES, Made

SCENARIOS = 12
GROWS, FALLS = 3, 7
"""Every third scenario improves with training; the seventh gets worse."""
CRITERIA = {
    "Right answer": (0.41, 0.009),
    "Cites the email": (0.3, 0.006),
    "Admits not finding it": (0.55, 0.002),
    "Few, useful steps": (0.62, -0.001),
}
"""Criterion of the rubric → score before training, and its change per step."""


def add_validations(made: Made, judged: bool = False) -> None:
    """Store the rollouts of every validation; `judged`: with the judge's comparisons."""
    for place, event in enumerate(made.events):
        if not isinstance(event, e.ValidationFinished):
            continue
        for number in range(SCENARIOS):
            _add(made, event.step, number)
        if judged:
            scores = {f"v{n}": _score(n) for n in range(SCENARIOS)}
            against = (StepComparison(opponent=0, scores=scores),) if event.step else ()
            update = {"against": against, "criteria": _criteria(event.step)}
            made.events[place] = event.model_copy(update=update)


def _criteria(step: int) -> dict[str, Interval]:
    means = {name: min(0.95, start + gain * step) for name, (start, gain) in CRITERIA.items()}
    return {
        name: Interval(mean=mean, low=mean - 0.06, high=min(1.0, mean + 0.06), count=SCENARIOS)
        for name, mean in means.items()
    }


def _score(number: int) -> float:
    return 0.0 if number == FALLS else 1.0 if number % GROWS == 0 else 0.5


def _add(made: Made, step: int, number: int) -> None:
    base = random.Random(f"{made.spec.id} {number}").uniform(0.2, 0.6)
    gain = 0.02 * step * (_score(number) - 0.5)
    reward = round(min(1.0, max(0.0, base + gain)), 4)
    title = TITLES[number % len(TITLES)]
    made.trajectories.append(
        TrajectorySummary(
            id=f"{made.spec.id[-4:]}-v{step:04}-{number:02}",
            split="validation",
            step=step,
            group=number,
            index=0,
            scenario_id=f"v{number}",
            title=title,
            reward=reward,
            turns=2,
            sampled_tokens=120,
        )
    )
    made.groups.append(
        GroupSummary(
            split="validation",
            step=step,
            group=number,
            scenario_id=f"v{number}",
            title=title,
            rewards=[reward],
            mean=reward,
            std=0.0,
            signal=False,
        )
    )
