"""Loading of a project that may be damaged."""

from engine.client import EngineClient
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import ProjectView


async def read_project(client: EngineClient, path: str) -> ProjectView:
    """Load a project. An unreadable one is taken from the engine's list, with its problems. Raises
    the engine's error if the folder is not listed either."""
    try:
        return await client.project(path)
    except AtelierError:
        listed = (one for one in await client.projects() if one.path == path and not one.config)
        if (view := next(listed, None)) is None:
            raise
        return view
