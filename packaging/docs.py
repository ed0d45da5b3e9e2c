"""`bootstrap.py docs`: build the documentation pages as a static site, with Zensical in its own
environment. Standard library only.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import environments
import place
from base import LOCKS, ROOT, VENV, Failed, ensure_environment, ensure_pip, say
from door import Teller

NAME = "docs"
WRITE = "import sys, pathlib, studio.text.help_pages as p; p.write_pages(pathlib.Path(sys.argv[1]))"


def add_docs(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    docs = commands.add_parser(NAME, help="build the documentation as a static site")
    docs.add_argument("--out", type=Path, default=ROOT / "site", help="folder to replace (site)")
    docs.set_defaults(command=command_docs)


def command_docs(arguments: argparse.Namespace) -> int:
    ensure_environment()
    ensure_pip()
    try:
        home = environments.install(place.Place(NAME, LOCKS, VENV), Teller(as_json=False))
    except place.Refusal as refusal:
        raise Failed(str(refusal)) from refusal
    build(home, arguments.out)
    say(f"Built {arguments.out / 'index.html'}")
    return 0


def build(home: Path, out: Path) -> None:
    """Render all pages into `out`; raises Failed, and leaves `out` as it is, for a broken link."""
    python = str(place.python_of(home))
    with tempfile.TemporaryDirectory(prefix="atelier-docs-") as scratch:
        steps = [([python, "-c", WRITE, scratch], ROOT)]
        steps += [([python, "-m", "zensical", "build", "--strict"], Path(scratch))]
        for command, folder in steps:
            if subprocess.call(command, cwd=folder):
                raise Failed("The documentation could not be built.")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(Path(scratch) / "site", out)
