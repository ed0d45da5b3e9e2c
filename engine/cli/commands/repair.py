"""`repair RUN`: recover a damaged run. No engine needed."""

import argparse
from pathlib import Path

from engine.cli.terminal import complain, say
from engine.protocol.problems import AtelierError
from engine.server.services.repair import repair
from engine.storage.run_folder.run import locked


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
