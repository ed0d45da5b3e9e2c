"""The Python that an engine is started with from a script, whose own has seldom what it needs."""

import os
from importlib.util import find_spec

from engine.launcher.engine_choice import read_choice
from engine.launcher.engine_root import checkout
from engine.protocol.problems import LaunchError

VARIABLE = "ATELIER_PYTHON"
NEEDED = ("apsw", "starlette", "uvicorn", "psutil")
"""Packages that an engine cannot start without."""


def engine_python(given: str | None) -> str | None:
    """Python of the engine: the given one (argument or variable), None where the launcher may
    choose, else that of the chosen engine or of the checkout. Raises LaunchError where there is
    none."""
    if named := given or os.environ.get(VARIABLE):
        return named
    if all(find_spec(name) for name in NEEDED):
        return None
    choice = read_choice().current
    if not choice.built_in:
        return str(choice.python)
    own = checkout() / ".venv" / "bin" / "python"
    if own.exists():
        return str(own)
    raise LaunchError.of(
        "engine.no_python",
        "The Python of this script cannot run an engine, and no other one is known.",
        f"Set up Atelier with `python3 packaging/bootstrap.py setup`, or name the Python of an "
        f"engine: AtelierBackend(python=…) or {VARIABLE}.",
        where=str(own),
    )
