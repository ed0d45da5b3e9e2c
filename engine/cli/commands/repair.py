"""`repair RUN`: recover a damaged run. No engine needed."""

import argparse

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import say
from engine.server.services.repair import repair
from engine.storage.run_folder.run import locked


def run(arguments: argparse.Namespace) -> int:
    folder = find_run_folder(arguments.run)
    with locked(folder):
        repaired = repair(folder)
    say(repaired.words)
    return 0
