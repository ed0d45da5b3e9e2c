"""Loading of a project that may be damaged."""

from engine.client import EngineClient
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import ProjectView


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
