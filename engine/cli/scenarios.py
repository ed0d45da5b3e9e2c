"""`scenarios`: what came of each scenario of a run, the hardest first. No engine needed."""

import argparse
from pathlib import Path

from engine.cli.terminal import complain, figure, say, say_json, table
from engine.protocol.curves import CurveQuery, ScenarioCurve
from engine.protocol.problems import AtelierError
from engine.run import DATABASE, read_spec
from engine.store.reader import RunReader

ORDERS = {"hardest": "difficulty", "improved": "gain", "forgotten": "lost", "spread": "spread"}
"""What can be asked for → the column."""
BARS = "▁▂▃▄▅▆▇█"
POINTS = 16


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.run).expanduser().resolve()
    try:
        read_spec(folder)
        reader = RunReader(folder / DATABASE)
    except AtelierError as error:
        complain(error.problem, arguments.json)
        return 1
    page = reader.curves(
        CurveQuery(
            split=arguments.split,
            sort=ORDERS[arguments.sort],  # type: ignore[arg-type]
            search=arguments.search,
            limit=min(arguments.limit, 1000),
        )
    )
    reader.close()
    if arguments.json:
        for item in page.items:
            say_json(item)
        return 0
    say(f"{page.total} scenarios, {len(page.items)} shown; solved is a reward ≥ {page.solved_at:g}")
    heads = ("scenario", "visits", "mean", "early", "late", "gain", "spread", "last step", "")
    say(table(heads, [(*_cells(item), item.title) for item in page.items]))
    return 0


def _cells(one: ScenarioCurve) -> tuple[str, ...]:
    return (
        one.scenario_id,
        str(one.visits),
        f"{figure(one.mean)} {spark([mean for _, mean in one.curve])}",
        share(one.early),
        share(one.late),
        "–" if one.gain is None else f"{100 * one.gain:+.0f} %",
        figure(one.spread),
        str(one.last_step),
    )


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def spark(values: list[float]) -> str:
    """A line of text from the lowest to the highest of them."""
    shown = values[-POINTS:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)
