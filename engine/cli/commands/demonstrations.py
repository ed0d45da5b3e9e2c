"""`demonstrations`: write good trajectories of a run as demonstrations."""

import argparse

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import complain, say, say_json
from engine.protocol.problems import AtelierError
from engine.protocol.records.demonstrations import SelectDemonstrations, Selection
from engine.training.sft.selection import demonstrate, words_of


def run(arguments: argparse.Namespace) -> int:
    asked = SelectDemonstrations(
        keep=arguments.keep,
        file="" if arguments.count else arguments.out,
        step=arguments.step,
        split=arguments.split,
        contestant=arguments.contestant,
    )
    try:
        return print_selection(demonstrate(find_run_folder(arguments.run), asked), arguments.json)
    except AtelierError as error:
        complain(error.problem, arguments.json)
        return 2 if error.problem.code == "config.bad_keep" else 1


def print_selection(found: Selection, as_json: bool) -> int:
    """Print what was kept; 1 where that is nothing."""
    if as_json:
        say_json(found)
    else:
        say(words_of(found))
    return 0 if found.kept else 1
