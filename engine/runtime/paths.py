"""Locations of this package and of the files that ship with it."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder `engine`."""
ROOT = PACKAGE.parent
"""The folder that holds `engine`: the import path of child processes."""
RESOURCES = ROOT / "resources"
LIFE_PIPE = PACKAGE / "runtime" / "life_pipe.py"
"""Module of the life pipe, loaded by path in interpreters that do not have this package."""
ISOLATED = PACKAGE / "runtime" / "isolated.py"
"""Script that runs a module where no other folder beside `engine` is importable."""
