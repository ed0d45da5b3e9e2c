"""Parser of the command line. Bad usage exits with code 2 and one sentence."""

import argparse
import importlib
from collections.abc import Callable

from engine.cli.options import (
    clusters,
    hosts,
    judging,
    machine,
    models,
    projects,
    runs,
    sft,
    sweeps,
)
from engine.cli.options.general import Parser

GROUPS = (projects, runs, sweeps, judging, sft, models, hosts, clusters, machine)
"""Groups of commands, in the order of the help."""
MODULES = {
    "import": "imports",
    "eval": "evaluate",
    "serve-model": "serve_model",
    "mcp-server": "mcp_server",
}
"""Module names of commands whose modules are named differently."""
ABOUT = "Train LLM agents by reinforcement learning on your own machine."


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="atelier",
        description=ABOUT,
        epilog=_listing(),
        usage="atelier COMMAND …",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        required=True,
        metavar="COMMAND",
        parser_class=Parser,
        help=argparse.SUPPRESS,
        prog="atelier",
    )
    for group in GROUPS:
        for name, (words, options) in group.COMMANDS.items():
            command = commands.add_parser(name, description=words[0].upper() + words[1:] + ".")
            options(command)
            command.set_defaults(command=_importing(name))
    return parser.parse_args(argv)


def _listing() -> str:
    lines = ["`atelier COMMAND --help` shows the options of a command."]
    for group in GROUPS:
        lines += ["", f"{group.TITLE}:"]
        lines += [f"  {name:<16}{words}" for name, (words, _) in group.COMMANDS.items()]
    return "\n".join(lines)


def _importing(name: str) -> Callable[[argparse.Namespace], int]:
    """Function that imports and runs the command's module; for a refusal its exit code is 2 for
    usage and settings, else 1."""

    def run(arguments: argparse.Namespace) -> int:
        from engine.cli.terminal import complain
        from engine.protocol.problems import AtelierError, ConfigError

        try:
            if name != "trust" and hasattr(arguments, "confirm_address"):
                importlib.import_module("engine.cli.commands.trust").settle_trust(arguments)
            module = importlib.import_module(f"engine.cli.commands.{MODULES.get(name, name)}")
            result: int = module.run(arguments)
            return result
        except AtelierError as error:
            complain(error.problem, getattr(arguments, "json", False))
            settings = error.problem.code.startswith(("config.", "evaluation."))
            return 2 if settings or isinstance(error, ConfigError) else 1

    return run
