"""Local machine as seen by servers: its id, keys, projects and started runs."""

import hashlib
import string
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.protocol.base import BaseEvent
from engine.protocol.requests.home import HomeRequest
from engine.remote.started_runs import StartedRuns

FIT = set(string.ascii_letters + string.digits + "-_")
"""Characters of folder names that are valid on every machine."""


@dataclass
class LocalMachine:
    """Data of this machine that every remote server needs."""

    id: str
    name: str
    projects: Callable[[], list[Path]]
    announce: Callable[[str, BaseEvent | None], None]
    keys: Mapping[str, str]
    """API keys of judges, by provider."""
    run_home_request: Callable[[str, HomeRequest], Awaitable[Any]]
    """Executes a home request of the server `host` in the local judge process."""
    changed: Callable[[], None]
    started: StartedRuns
    """Settings of the runs that were started from here."""

    def folder_name(self, project: Path) -> str:
        """Folder name of a local project in a server's workspace; the same until the project is
        moved."""
        mark = hashlib.sha256(f"{self.id} {project}".encode()).hexdigest()[:8]
        kept = "".join(c if c in FIT else "-" for c in project.name)
        return f"{kept.strip('-_') or 'project'}-{mark}"
