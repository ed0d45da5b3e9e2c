"""`models list|pull NAME|path NAME`."""

import argparse

from engine.cli.terminal import say, say_json, table
from engine.models.download import pull_model
from engine.models.registry import find_model, known_models


def run(arguments: argparse.Namespace) -> int:
    return ACTIONS[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    models = known_models()
    if arguments.json:
        for model in models:
            say_json(model)
        return 0
    rows = [
        (m.name, m.title, m.path or f"to download, {m.download_bytes // 1_000_000} MB")
        for m in models
    ]
    say(table(("name", "", "where"), rows))
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    say(str(pull_model(arguments.name, say)))
    return 0


def _path(arguments: argparse.Namespace) -> int:
    say(str(find_model(arguments.name)))
    return 0


ACTIONS = {"list": _list, "pull": _pull, "path": _path}
