"""`compare RUN RUN …`: validations of runs scenario by scenario, and their settings. No engine
needed."""

import argparse
from typing import Any

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import figure, percent, say, say_json, signed, table
from engine.protocol.problems import ConfigError
from engine.protocol.records.run_table import (
    MOST_COMPARED,
    ComparedRun,
    Measure,
    RunComparison,
    ScenarioScores,
)
from engine.protocol.requests.run_table import CompareRuns
from engine.server.services.run_table.comparison import compare_runs


def run(arguments: argparse.Namespace) -> int:
    if not 2 <= len(arguments.run) <= MOST_COMPARED:
        raise ConfigError.of(
            "compare.count",
            f"{len(arguments.run)} runs were given; 2 to {MOST_COMPARED} can be compared.",
            "Pass the reference run first: `atelier compare RUN RUN`.",
        )
    folders = [find_run_folder(text) for text in arguments.run]
    request = CompareRuns(
        runs=[folder.name for folder in folders], at="last" if arguments.last else "best"
    )
    found = compare_runs(folders, request)
    if arguments.json:
        say_json(found)
    else:
        _show(found, arguments.scenarios)
    return 0


def _show(found: RunComparison, scenarios: int) -> None:
    measure = "win rate" if found.measure == "win_rate" else "reward"
    head = ("run", "step", measure, "95 %", "difference", "95 %", "won, tied, lost", "")
    say(table(head, [_row(one, found.measure) for one in found.runs]))
    if found.measure == "win_rate":
        say("Win rates are against each run's own baseline.")
    elif found.at == "best" and max(one.validations for one in found.runs) > 1:
        say("The best of several validations is likely an overestimate.")
        say("Compare the last validations with --last.")
    names = [one.name for one in found.runs]
    if found.settings:
        say()
        rows = [(one.key, *map(_shown, one.values)) for one in found.settings]
        say(table(("setting", *names), rows))
    say(f"{found.equal} settings are the same in all runs.")
    if scenarios and found.scenarios:
        say()
        say(table(("scenario", *names), [_scores(one) for one in found.scenarios[:scenarios]]))


def _row(one: ComparedRun, measure: Measure) -> tuple[str, ...]:
    words = percent if measure == "win_rate" else figure
    result, versus = one.result, one.versus
    difference = versus.difference if versus else None
    return (
        one.name,
        "–" if one.step is None else str(one.step),
        words(result.mean) if result else "–",
        f"{words(result.low)} to {words(result.high)}" if result else "",
        signed(difference.mean) if difference else "",
        f"{signed(difference.low)} to {signed(difference.high)}" if difference else "",
        f"{versus.wins}, {versus.ties}, {versus.losses}" if versus and difference else "",
        versus.word if versus and difference else "",
    )


def _scores(one: ScenarioScores) -> tuple[str, ...]:
    return (one.title, *map(figure, one.scores))


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)
