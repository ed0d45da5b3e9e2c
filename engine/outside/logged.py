"""What a script logs beside training: attempts of other splits, and figures by its own names."""

import math
import time

from engine.advantage.group import interval
from engine.evaluation.validate import scenario_means
from engine.imports.lots import id_of
from engine.outside.attempts import trajectories_of
from engine.outside.completions import Completions
from engine.protocol.events import MetricsLogged, ValidationFinished
from engine.protocol.outside import LogOutside
from engine.protocol.records import Trajectory
from engine.rollout.chat import ChatFormat
from engine.rollout.groups import close_group
from engine.run import Run

OWN = ("val", "validation")
"""Splits that are our validation; the scenarios of others carry the split's name."""


async def store_logged(run: Run, asked: LogOutside, known: Completions, chat: ChatFormat) -> None:
    """Returns when all of it is on record. Groups of a step that is logged again come behind those
    that are there. Raises ConfigError for a wrong value."""
    if asked.groups and asked.split == "validation":
        await _store_groups(run, asked, known, chat)
    if asked.values:
        finite = {name: value for name, value in asked.values.items() if math.isfinite(value)}
        dropped = len(asked.values) - len(finite)
        event = MetricsLogged(step=asked.step, split=asked.name, values=finite, dropped=dropped)
        await run.say(event)


async def _store_groups(run: Run, asked: LogOutside, known: Completions, chat: ChatFormat) -> None:
    begun = time.monotonic()
    stored = run.reader.stored("validation", asked.step)
    first = max((one.group for one in stored), default=-1) + 1
    prefix = "" if asked.name in OWN else f"{asked.name}/"
    groups, _ = trajectories_of(
        asked.groups, "validation", asked.step, known, chat, None, first, prefix
    )
    groups = by_scenario(groups, first)
    for siblings in groups:
        for one in siblings:
            await run.writer.add_trajectory(one)
        await close_group(run, None, siblings)
    everyone = _by_group(stored) + groups
    means = scenario_means(everyone)
    await run.say(
        ValidationFinished(
            step=asked.step,
            reward=interval(list(means.values())),
            scenarios=means,
            unscored=sum(one.reward is None for group in everyone for one in group),
            seconds=time.monotonic() - begun,
        )
    )


def by_scenario(groups: list[list[Trajectory]], first: int) -> list[list[Trajectory]]:
    """ART makes one group of a list of attempts, whatever each was about: one of ours for each
    scenario, numbered from `first`."""
    found: list[list[Trajectory]] = []
    for siblings in groups:
        for scenario in dict.fromkeys(one.scenario_id for one in siblings):
            found.append([one for one in siblings if one.scenario_id == scenario])
    return [
        [
            one.model_copy(
                update={
                    "id": id_of(one.split, one.step, number, index),
                    "group": number,
                    "index": index,
                }
            )
            for index, one in enumerate(siblings)
        ]
        for number, siblings in enumerate(found, first)
    ]


def _by_group(attempts: list[Trajectory]) -> list[list[Trajectory]]:
    numbers = sorted({one.group for one in attempts})
    return [[one for one in attempts if one.group == number] for number in numbers]
