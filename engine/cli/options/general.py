"""Parser and options that several commands share."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See `{self.prog} --help`.\n")


def workspace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace", help="folder of projects (default: $ATELIER_WORKSPACE or Documents/Atelier)"
    )


def as_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON lines on stdout, nothing else")


def settings(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="values",
        help=f"any setting of project.toml, as {example}; repeatable",
    )


def queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--queue", action="store_true", help="wait in the queue while another run is active"
    )


def money(parser: argparse._ActionsContainer, budget: float | None = None) -> None:
    """Add options of commands that call models billed by the token; `budget` is the default in USD
    (None: no limit)."""
    usual = "" if budget is None else f" ({budget:g})"
    parser.add_argument(
        "--budget", type=float, default=budget, metavar="USD", help=f"spend at most this{usual}"
    )
    parser.add_argument(
        "--price",
        type=float,
        nargs=2,
        metavar=("IN", "OUT"),
        help="dollars for a million tokens, where the price list lacks the model",
    )


def trust(parser: argparse.ArgumentParser) -> None:
    """Add options of commands that run a project's code or send any of its data."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="trust the project: it may run code and send from now on",
    )
    confirm_address(parser)


def confirm_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--confirm-address",
        action="append",
        default=[],
        metavar="PROVIDER=URL",
        help="this address may get the provider's key from now on; repeatable",
    )


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value
