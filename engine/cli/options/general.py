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
    parser.add_argument("--json", action="store_true", help="print only JSON lines on stdout")


def settings(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="values",
        help=f"override a setting of project.toml, for example {example}; repeatable",
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
        "--budget", type=float, default=budget, metavar="USD", help=f"spending limit{usual}"
    )
    parser.add_argument(
        "--price",
        type=float,
        nargs=2,
        metavar=("IN", "OUT"),
        help="USD per million tokens, for models missing in the price list",
    )


def trust(parser: argparse.ArgumentParser) -> None:
    """Add options of commands that run a project's code or send any of its data."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="trust the project: from now on it may run code and send data",
    )
    confirm_address(parser)


def confirm_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--confirm-address",
        action="append",
        default=[],
        metavar="PROVIDER=URL",
        help="trust this address: the provider's key may be sent there from now on (repeatable)",
    )


def natural(text: str) -> int:
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value
