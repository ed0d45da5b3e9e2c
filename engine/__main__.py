"""`python -m engine …`: parse first, import what the command needs after."""

import sys

from engine.cli.parser import parse

if __name__ == "__main__":
    arguments = parse(sys.argv[1:])
    sys.exit(arguments.command(arguments))
