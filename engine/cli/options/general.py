"""What commands have in common: a parser that says one sentence, and options of many."""

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


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value
