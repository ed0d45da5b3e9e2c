"""`scenarios`: rewards of each scenario of a run, hardest first. No engine needed."""

import argparse

from engine.cli.run_lookup import reading
from engine.cli.terminal import figure, say, say_json, sparkline, table
from engine.protocol.records.curves import CurveQuery, ScenarioCurve

ORDERS = {"hardest": "difficulty", "improved": "gain", "forgotten": "lost", "spread": "spread"}
"""Values of --sort → sort key of the query."""
POINTS = 16


def run(arguments: argparse.Namespace) -> int:
    query = CurveQuery(
        split=arguments.split,
        sort=ORDERS[arguments.sort],  # type: ignore[arg-type]
        search=arguments.search,
        limit=min(arguments.limit, 1000),
    )
    with reading(arguments.run) as reader:
        page = reader.curves(query)
    if arguments.json:
        for item in page.items:
            say_json(item)
        return 0
    say(f"{page.total} scenarios, {len(page.items)} shown; solved: reward ≥ {page.solved_at:g}")
    heads = ("scenario", "visits", "mean", "early", "late", "gain", "spread", "last step", "")
    say(table(heads, [(*_cells(item), item.title) for item in page.items]))
    return 0


def _cells(one: ScenarioCurve) -> tuple[str, ...]:
    return (
        one.scenario_id,
        str(one.visits),
        f"{figure(one.mean)} {sparkline([mean for _, mean in one.curve[-POINTS:]])}",
        share(one.early),
        share(one.late),
        "–" if one.gain is None else f"{100 * one.gain:+.0f} %",
        figure(one.spread),
        str(one.last_step),
    )


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
