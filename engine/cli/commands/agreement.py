"""`agreement`: agreement of a run's judges with the person, and with themselves."""

import argparse

from engine.cli.run_lookup import reading
from engine.cli.terminal import figure, say, say_json, table
from engine.judge.calibration.measurement import agreements
from engine.protocol.records.labels import Agreement
from engine.protocol.records.runs import Interval


def run(arguments: argparse.Namespace) -> int:
    with reading(arguments.run) as reader:
        found = agreements(reader)
    if arguments.json:
        for row in found:
            say_json(row)
    elif not found:
        say("No judge has scored this run yet. Start one: atelier judge RUN --judge MODEL")
    else:
        say(table(HEADS, [_row(row) for row in found]))
        say(_words(found[0]))
    return 0


HEADS = (
    "judge", "rubric", "groups", "pairs", "τ with you", "same order", "flips", "stable", "length",
    "unscored", "cost",
)  # fmt: skip


def _row(row: Agreement) -> tuple[str, ...]:
    return (
        row.judge,
        row.rubric,
        str(row.groups),
        str(row.pairs),
        _interval(row.tau),
        figure(row.accuracy),
        figure(row.flips),
        figure(row.stability),
        figure(row.length),
        str(row.unscored),
        f"${row.usd:.4f}",
    )


def _words(row: Agreement) -> str:
    if row.self_consistency is None:
        return "Grade some groups twice, blind, to measure your own consistency."
    own, groups = _interval(row.self_consistency), row.repeats
    return f"Your own consistency: {own} over {groups} groups. This is the ceiling for any judge."


def _interval(value: Interval | None) -> str:
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]" if value else "–"
