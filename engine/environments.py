"""Environments beside the engine's own: what they hold shares no process with anything else."""

import subprocess
import sys
from pathlib import Path

from engine.protocol.problems import AtelierError

BOOTSTRAP = Path(__file__).parents[1] / "packaging" / "bootstrap.py"


class EnvironmentMissing(AtelierError):
    """It is not installed, and could not be."""


def python_of(name: str) -> Path:
    """The Python of an environment; installed on the first call, into the user's cache."""
    if not BOOTSTRAP.exists():
        raise EnvironmentMissing.of(
            "environment.no_source",
            f"The {name} environment is installed from a source checkout: packaging/bootstrap.py "
            "is not here.",
            "Clone the repository and run the command there.",
        )
    command = [sys.executable, str(BOOTSTRAP), "environment", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise EnvironmentMissing.of(
            "environment.not_installed",
            f"The {name} environment could not be installed.",
            "Try again: it goes on where it stopped.",
            detail=done.stderr[-4000:],
        )
    return Path(done.stdout.strip().splitlines()[-1])
