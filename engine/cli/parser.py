"""What can be typed. Bad usage is exit 2 with one sentence."""

import argparse
import importlib
from collections.abc import Callable

from engine.cli.options import hosts, judging, machine, models, projects, runs, sft
from engine.cli.options.general import Parser

COMMANDS = (
    projects.COMMANDS
    | sft.COMMANDS
    | runs.COMMANDS
    | judging.COMMANDS
    | models.COMMANDS
    | hosts.COMMANDS
    | machine.COMMANDS
)
"""In the order in which they are listed."""
MODULES = {"import": "imports", "eval": "evaluation", "serve-model": "serve_model"}
"""Of commands whose name cannot be that of a module."""


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m engine", description="Atelier's engine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for name, (words, options) in COMMANDS.items():
        command = commands.add_parser(name, help=words, description=words.capitalize() + ".")
        options(command)
        command.set_defaults(command=_late(name))
    return parser.parse_args(argv)


def _late(name: str) -> Callable[[argparse.Namespace], int]:
    """The command's module is imported when it runs."""

    def run(arguments: argparse.Namespace) -> int:
        if name != "trust" and hasattr(arguments, "confirm_address"):
            trust = importlib.import_module("engine.cli.commands.trust")
            if (code := trust.settle(arguments)) is not None:
                return int(code)
        module = importlib.import_module(f"engine.cli.commands.{MODULES.get(name, name)}")
        result: int = module.run(arguments)
        return result

    return run
