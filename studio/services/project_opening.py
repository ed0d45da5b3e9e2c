"""Loading of a project, which may be damaged, and of its runs."""

from collections.abc import Sequence

from engine.client import EngineClient
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import ACTIVE_STATES, TRAINING_KINDS, ProjectView, RunSummary


async def read_project(client: EngineClient, path: str) -> ProjectView:
    """Load the project at `path`. If it is unreadable, return its entry in the engine's list, which
    has its problems; if it is not listed either, the engine's error is raised."""
    try:
        return await client.project(path)
    except AtelierError:
        listed = (one for one in await client.projects() if one.path == path and not one.config)
        if (view := next(listed, None)) is None:
            raise
        return view


def first_shown(runs: Sequence[RunSummary]) -> RunSummary | None:
    """Return the run that is shown when its project is opened, of its runs (newest first): an
    active one, else one that trained, else an imported one; None if there is none of these."""
    active = [run for run in runs if run.state in ACTIVE_STATES]
    trained = [run for run in runs if run.kind in TRAINING_KINDS]
    imported = [run for run in runs if run.kind == "imported"]
    return next(iter([*active, *trained, *imported]), None)
