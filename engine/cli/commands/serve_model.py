"""`serve-model`: serve an exported model on a local OpenAI-compatible endpoint until Ctrl C."""

import argparse
import asyncio
from pathlib import Path

from engine.cli.terminal import say
from engine.server.model_server import Served, serve_model


def run(arguments: argparse.Namespace) -> int:
    served = Served(Path(arguments.folder).expanduser().resolve(), arguments.base)
    dtype = arguments.dtype or served.proven_in
    proven = ", as in the parity check" if dtype == served.proven_in != "auto" else ""
    say(f"Loading {served.name} ({served.kind}) in {dtype} precision{proven}")
    asyncio.run(
        serve_model(
            served,
            arguments.port,
            arguments.api_key,
            dtype,
            arguments.context,
            lambda address, name: say(f"Serving {name} at {address}; Ctrl C stops it."),
        )
    )
    return 0
