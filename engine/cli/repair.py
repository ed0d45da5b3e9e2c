"""`repair RUN`: recover a damaged run. No engine needed."""

import argparse
from pathlib import Path

from engine.cli.terminal import complain, say
from engine.protocol.problems import AtelierError
from engine.run import locked
from engine.server.repairing import repair


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.run).expanduser().resolve()
    try:
        with locked(folder):
            repaired = repair(folder)
    except AtelierError as error:
        complain(error.problem)
        return 1
    say(repaired.words)
    return 0
