"""`remove RUN`: delete a run folder with its checkpoints. No engine needed."""

import argparse

from engine.cli.run_lookup import find_run_folder
from engine.cli.terminal import say
from engine.server.services.repair import remove
from engine.storage.run_folder.run import locked


def run(arguments: argparse.Namespace) -> int:
    folder = find_run_folder(arguments.run)
    if not arguments.yes:
        say(f"Delete {folder} with its checkpoints? Type its name to confirm: {folder.name}")
        if input().strip() != folder.name:
            say("Nothing was deleted.")
            return 3
    with locked(folder):
        remove(folder)
    say(f"{folder.name} was deleted.")
    return 0
