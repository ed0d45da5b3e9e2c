"""`attach`: find or start the engine of a workspace and print its address in one line. Called
over SSH by the machine of the user (home machine)."""

import argparse
import asyncio
import sys
from pathlib import Path

from engine.protocol.problems import AtelierError
from engine.remote.tunnel.attach import attach, detach


def run(arguments: argparse.Namespace) -> int:
    workspace = Path(arguments.workspace).expanduser().resolve()
    try:
        if arguments.stop:
            asyncio.run(detach(workspace))
            return 0
        reached = asyncio.run(attach(workspace))
    except AtelierError as error:
        sys.stdout.write(error.problem.model_dump_json() + "\n")
        return 1
    sys.stdout.write(reached.model_dump_json() + "\n")
    return 0
