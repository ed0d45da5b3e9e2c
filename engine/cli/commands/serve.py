"""`serve`: run an engine; prints its handshake as one line on stdout, everything else on stderr."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from engine.launcher.local import default_workspace
from engine.protocol.requests.runs import Handshake
from engine.server.serve import serve


def run(arguments: argparse.Namespace) -> int:
    workspace = Path(arguments.workspace) if arguments.workspace else default_workspace()
    asyncio.run(serve(workspace.expanduser().resolve(), _say_ready))
    return 0


def _say_ready(handshake: Handshake) -> None:
    """Print the handshake, then release stdout, so that the calling process may exit."""
    sys.stdout.write(handshake.model_dump_json() + "\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
