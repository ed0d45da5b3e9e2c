"""Trajectories of other splits, and metrics, that a script logs beside training."""

import asyncio
import math
import time

from engine.evaluation.validation import scenario_means
from engine.integrations.importers.chat_messages import id_of
from engine.integrations.scripts.completions import CompletionIndex, Completions
from engine.integrations.scripts.logs import Logs, StartedLog
from engine.integrations.scripts.trajectories import dropped_words, trajectories_of
from engine.protocol.events.run import MetricsLogged, ValidationFinished
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.scripts import LogOutside
from engine.reward.advantage.group import interval
from engine.rollout.groups import close_group
from engine.rollout.rendering.chat import ChatFormat
from engine.storage.run_folder.run import Run

OWN = ("val", "validation")
"""Names of the validation split. Scenarios of other splits get the split as a prefix."""


async def store_logged(
    run: Run, request: LogOutside, logs: Logs, known: Completions, chat: ChatFormat
) -> None:
    """Store what a script has logged, once per `request.key`, noted in `logs`; returns when
    committed. Groups that are logged again for a step are appended to the stored ones. `known` has
    the completions sampled for the script. Raises ConfigError for an invalid value."""
    async with logs.lock:
        clock = time.monotonic()
        again = logs.get(request.key)
        first = again.first if again else _first_free(run, request.step, logs)
        groups, dropped = await asyncio.to_thread(_groups, request, known.held, chat, first)
        after = again.after if again else run.reader.last_seq()
        if again is None:
            key, step, number = request.key, request.step, len(groups)
            log = StartedLog(key=key, step=step, first=first, groups=number, after=after)
            await logs.begin(log)
            if dropped:
                await run.log("warning", "script", dropped_words(request.step, dropped))
        if groups:
            await _store_groups(run, groups)
            finished = _validation(run, request.step, time.monotonic() - clock)
            if not (again and _covers(run, finished)):
                await run.say(finished)
        if request.values and not (again and _has_figures(run, request, after)):
            await run.say(_figures(request))


def _groups(
    request: LogOutside, known: CompletionIndex, chat: ChatFormat, first: int
) -> tuple[list[list[Trajectory]], int]:
    """Return validation groups, and the number of metrics that were not finite."""
    if not request.groups or request.split != "validation":
        return [], 0
    prefix = "" if request.name in OWN else f"{request.name}/"
    made, dropped = trajectories_of(
        request.groups, "validation", request.step, known, chat, None, first, prefix
    )
    return by_scenario(made, first), dropped


def _first_free(run: Run, step: int, logs: Logs) -> int:
    stored = run.reader.stored("validation", step)
    return max(max((one.group for one in stored), default=-1) + 1, logs.free(step))


async def _store_groups(run: Run, groups: list[list[Trajectory]]) -> None:
    """Store those trajectories that are not stored yet, and all groups."""
    known = {one.id for one in run.reader.stored("validation", groups[0][0].step)}
    for siblings in groups:
        for one in siblings:
            if one.id not in known:
                await run.writer.add_trajectory(one)
        await close_group(run, None, siblings)


def _validation(run: Run, step: int, seconds: float) -> ValidationFinished:
    """Return the validation result of all stored trajectories of the step."""
    everyone = _by_group(run.reader.stored("validation", step))
    means = scenario_means(everyone)
    return ValidationFinished(
        step=step,
        reward=interval(list(means.values())),
        scenarios=means,
        unscored=sum(one.reward is None for group in everyone for one in group),
        seconds=seconds,
    )


def _covers(run: Run, finished: ValidationFinished) -> bool:
    """Whether the last stored validation of the step has the same scores."""
    stored = [
        one
        for one in run.reader.events_of("validation.finished")
        if isinstance(one, ValidationFinished) and one.step == finished.step
    ]
    if not stored:
        return False
    return (stored[-1].scenarios, stored[-1].unscored) == (finished.scenarios, finished.unscored)


def _has_figures(run: Run, request: LogOutside, after: int) -> bool:
    event = _figures(request)
    return any(
        isinstance(one, MetricsLogged)
        and (one.step, one.split, one.values) == (event.step, event.split, event.values)
        for one in run.reader.events_of("metrics.logged")
        if (one.seq or 0) > after
    )


def _figures(request: LogOutside) -> MetricsLogged:
    finite = {name: value for name, value in request.values.items() if math.isfinite(value)}
    dropped = len(request.values) - len(finite)
    return MetricsLogged(step=request.step, split=request.name, values=finite, dropped=dropped)


def by_scenario(groups: list[list[Trajectory]], first: int) -> list[list[Trajectory]]:
    """Split groups by scenario and number them from `first`: an ART group may mix scenarios."""
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
