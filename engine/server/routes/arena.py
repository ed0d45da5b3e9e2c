"""Routes of questions to models side by side, and of how the votes stand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.evaluation.arena.run import find_or_make_arena, read_tally
from engine.evaluation.contestants import find_contestants
from engine.protocol.problems import AtelierError
from engine.protocol.requests.arena import AskArena
from engine.server.bodies import body_of, json_of, path_of, project_of
from engine.server.services.library import Library
from engine.server.services.supervisor import Supervisor
from engine.storage.project import load_config
from engine.storage.run_folder.run import read_spec

Handler = Callable[[Request], Awaitable[Response]]


class ArenaRoutes:
    """Questions and votes. `touch` is told of every line that a listener is sent."""

    def __init__(self, library: Library, supervisor: Supervisor, touch: Callable[[], None]) -> None:
        self.library = library
        self.supervisor = supervisor
        self.touch = touch

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [("POST", "/arena", self.ask), ("GET", "/arena", self.tally)]

    async def tally(self, request: Request) -> Response:
        return json_of(await asyncio.to_thread(read_tally, project_of(request)))

    async def ask(self, request: Request) -> Response:
        """A line of JSON for each word and attempt; hanging up cancels the rest."""
        asked = await body_of(request, AskArena)
        project = path_of(asked.project)
        contestants = await asyncio.to_thread(
            find_contestants, project, load_config(project), asked.models
        )
        folder = await find_or_make_arena(project)
        run_id = read_spec(folder).id
        self.library.remember(run_id, folder)

        async def lines() -> AsyncIterator[bytes]:
            try:
                async with self.supervisor.opened(run_id) as opened:
                    crowded = self.supervisor.living > 0
                    answers = self.supervisor.arena.ask(opened.run, asked, contestants, crowded)
                    async with contextlib.aclosing(answers):
                        async for told in answers:
                            self.touch()
                            yield told.model_dump_json().encode() + b"\n"
            except AtelierError as error:  # the answer has begun: the last line says it
                yield error.problem.model_dump_json().encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")
