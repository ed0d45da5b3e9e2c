"""`new FOLDER [--sample NAME]`."""

import argparse
from pathlib import Path

from engine.cli.terminal import complain, say
from engine.project import create_project
from engine.protocol.problems import AtelierError


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder).expanduser().resolve()
    try:
        create_project(folder, arguments.sample)
    except AtelierError as error:
        complain(error.problem)
        return 1
    say(f"Made {folder}. Train it: python -m engine train {arguments.folder}")
    return 0
