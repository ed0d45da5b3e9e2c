"""`demonstrations`: write good trajectories of a run as demonstrations."""

import argparse

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import say, say_json
from engine.protocol.records.demonstrations import SelectDemonstrations, Selection
from engine.training.sft.selection import demonstrate, words_of


def run(arguments: argparse.Namespace) -> int:
    request = SelectDemonstrations(
        keep=arguments.keep,
        file="" if arguments.count else arguments.out,
        step=arguments.step,
        split=arguments.split,
        contestant=arguments.contestant,
    )
    return print_selection(demonstrate(find_run_folder(arguments.run), request), arguments.json)


def print_selection(found: Selection, as_json: bool) -> int:
    """Print a selection of demonstrations, or write it as JSON; returns 1 if it is empty."""
    if as_json:
        say_json(found)
    else:
        say(words_of(found))
    return 0 if found.kept else 1
