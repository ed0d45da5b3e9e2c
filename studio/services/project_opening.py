"""Reading of a project that may be damaged."""

from engine.client import EngineClient
from engine.protocol.problems import AtelierError
from engine.protocol.records.runs import ProjectView


async def read_project(client: EngineClient, path: str) -> ProjectView:
    """The project as it is; one that cannot be read as the engine lists it, with its problems.

    Raises what the engine raises for a folder that it does not list either.
    """
    try:
        return await client.project(path)
    except AtelierError:
        listed = (one for one in await client.projects() if one.path == path and not one.config)
        if (view := next(listed, None)) is None:
            raise
        return view
