"""`trajectories`: the rows of a run folder; whole records with --json. No engine needed."""

import argparse
from pathlib import Path

from engine.cli.terminal import complain, duration, figure, say, say_json, table
from engine.protocol.problems import AtelierError
from engine.protocol.records import TrajectorySummary
from engine.protocol.requests import TrajectoryQuery
from engine.run import DATABASE, read_spec
from engine.store.reader import RunReader


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.run).expanduser().resolve()
    try:
        read_spec(folder)
        reader = RunReader(folder / DATABASE)
    except AtelierError as error:
        complain(error.problem, arguments.json)
        return 1
    page = reader.trajectories(query_of(arguments))
    if arguments.json:
        for row in page.items:
            say_json(reader.trajectory(row.id))
    else:
        say(f"{page.total} trajectories, {len(page.items)} shown")
        say(
            table(
                ("id", "step", "reward", "advantage", "turns", "tokens", "time", "scenario"),
                [
                    (
                        t.id,
                        str(t.step),
                        figure(t.reward) if t.reward is not None else "unscored",
                        figure(t.advantage),
                        str(t.turns),
                        str(t.sampled_tokens),
                        duration(t.duration_s),
                        " · ".join(filter(None, (t.contestant, t.title, _trouble(t)))),
                    )
                    for t in page.items
                ],
            )
        )
    reader.close()
    return 0


def query_of(arguments: argparse.Namespace) -> TrajectoryQuery:
    return TrajectoryQuery(
        split=arguments.split,
        step=arguments.step,
        state="unscored" if arguments.unscored else "all",
        search=arguments.search,
        limit=min(arguments.limit, 1000),
    )


def _trouble(one: TrajectorySummary) -> str:
    return one.problem.message if one.problem else ""
