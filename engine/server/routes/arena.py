"""Routes of the arena: questions to several models, and the tally of votes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from engine.evaluation.arena import find_or_make_arena, read_tally
from engine.evaluation.contestants import find_contestants
from engine.protocol.requests.arena import ArenaTicked, AskArena
from engine.server.bodies import Routes, body_of, json_lines, json_of, path_of, project_of
from engine.server.composition import Services
from engine.storage.project import load_config
from engine.storage.run_folder.run import read_spec


class ArenaRoutes:
    def __init__(self, services: Services) -> None:
        self._library, self._lifecycle = services.library, services.lifecycle
        self._arena, self._touch = services.arena, services.touch

    def routes(self) -> Routes:
        return [("POST", "/arena", self.ask), ("GET", "/arena", self.tally)]

    async def tally(self, request: Request) -> Response:
        return json_of(await asyncio.to_thread(read_tally, project_of(request)))

    async def ask(self, request: Request) -> Response:
        """Send a question to several models (body: `AskArena`); streams a JSON line for each piece
        of text and each trajectory. Hanging up cancels."""
        body = await body_of(request, AskArena)
        project = path_of(body.project)
        contestants = await asyncio.to_thread(
            find_contestants, project, load_config(project), body.models
        )
        folder = await find_or_make_arena(project)
        run_id = read_spec(folder).id
        self._library.remember(run_id, folder)

        async def answers() -> AsyncGenerator[ArenaTicked, None]:
            async with self._lifecycle.opened(run_id) as opened:
                crowded = bool(self._lifecycle.active)
                ticks = self._arena.ask(opened.run, body, contestants, crowded)
                async with contextlib.aclosing(ticks):
                    async for tick in ticks:
                        yield tick

        return json_lines(answers(), self._touch)
