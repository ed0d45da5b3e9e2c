"""Entry point of the command line: `atelier COMMAND …`, or `python -m engine COMMAND …`."""

import os
import sys

from engine.cli.parser import parse

CLOSED_PIPE = 141
"""Exit code for writing to a closed pipe: 128 + SIGPIPE."""


def main() -> int:
    """Parse the arguments, then import and run the command; returns the exit code."""
    try:
        arguments = parse(sys.argv[1:])
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # `atelier … | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return code
