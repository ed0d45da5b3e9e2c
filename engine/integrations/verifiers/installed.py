"""Environments of verifiers that are installed in environments of agents, by name."""

import re
from pathlib import Path

from engine.environments.bootstrap import statuses
from engine.integrations.verifiers.sources import BUILT_IN
from engine.protocol.requests.drafts import EnvironmentNames

NEEDS = re.compile(r"^Requires-Dist: verifiers\b(?![-_.])", re.MULTILINE | re.IGNORECASE)
NAME = re.compile(r"^Name: (\S+)$", re.MULTILINE)


def environment_names() -> EnvironmentNames:
    """Names of the task sets that verifiers brings, and of installed packages that need it."""
    found = set(BUILT_IN)
    for status in statuses():
        for home in (status.home, *status.homes):
            if home:
                found |= names_in(Path(home))
    return EnvironmentNames(names=sorted(found))


def names_in(home: Path) -> set[str]:
    """Names of the packages of a virtual environment that need verifiers."""
    found = set()
    for file in home.glob("lib/python3*/site-packages/*.dist-info/METADATA"):
        text = file.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        name = NAME.search(text)
        if name is not None and NEEDS.search(text):
            found.add(name[1])
    return found
