"""`trajectories`: the rows of a run folder; whole records with --json. No engine needed."""

import argparse

from engine.cli.run_lookup import reading
from engine.cli.terminal import duration, figure, say, say_json, table
from engine.protocol.records.runs import TrajectorySummary
from engine.protocol.requests.runs import TrajectoryQuery


def run(arguments: argparse.Namespace) -> int:
    with reading(arguments.run) as reader:
        page = reader.trajectories(query_of(arguments))
        whole = [reader.trajectory(row.id) for row in page.items] if arguments.json else []
    for one in whole:
        say_json(one)
    if not arguments.json:
        say(f"{page.total} trajectories, {len(page.items)} shown")
        say(table(HEADS, [_row(one) for one in page.items]))
    return 0


HEADS = ("id", "step", "reward", "advantage", "turns", "tokens", "time", "scenario")


def _row(one: TrajectorySummary) -> tuple[str, ...]:
    trouble = one.problem.message if one.problem else ""
    return (
        one.id,
        str(one.step),
        figure(one.reward) if one.reward is not None else "unscored",
        figure(one.advantage),
        str(one.turns),
        str(one.sampled_tokens),
        duration(one.duration_s),
        " · ".join(filter(None, (one.contestant, one.title, trouble))),
    )


def query_of(arguments: argparse.Namespace) -> TrajectoryQuery:
    return TrajectoryQuery(
        split=arguments.split,
        step=arguments.step,
        state="unscored" if arguments.unscored else "all",
        search=arguments.search,
        limit=min(arguments.limit, 1000),
    )
