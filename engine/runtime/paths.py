"""Locations of this package and of the files that ship with it."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""Folder of the `engine` package."""
ROOT = PACKAGE.parent
"""Parent folder of `engine`: the import path of child processes."""
RESOURCES = ROOT / "resources"
LIFE_PIPE = PACKAGE / "runtime" / "life_pipe.py"
"""Module of the life pipe, loaded by path in interpreters without this package."""
ISOLATED = PACKAGE / "runtime" / "isolated.py"
"""Script that runs a module with only `engine` importable."""
