"""Routes of projects that an LLM writes: the draft as it comes, and the files made of it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from engine.autorl.draft_folder import open_draft
from engine.autorl.job import open_writer
from engine.autorl.project_files import begin_with_tools, finish_project
from engine.integrations.mcp.servers import views_of
from engine.protocol.requests.drafts import BeginWithTools, DescribeTask, DraftTicked, FinishProject
from engine.server.bodies import Routes, body_of, json_lines, json_of, path_of
from engine.server.composition import Services
from engine.storage.run_folder.run import read_spec


class DraftRoutes:
    def __init__(self, services: Services) -> None:
        self._library, self._lifecycle = services.library, services.lifecycle
        self._credentials, self._touch = services.credentials, services.touch

    def routes(self) -> Routes:
        return [
            ("POST", "/drafts", self.write),
            ("PUT", "/drafts", self.finish),
            ("POST", "/drafts/tools", self.begin),
        ]

    async def write(self, request: Request) -> Response:
        """A line of JSON before and after each question; hanging up asks no more of them."""
        asked = await body_of(request, DescribeTask)
        folder = await open_draft(asked)
        run_id = (await asyncio.to_thread(read_spec, folder)).id
        self._library.remember(run_id, folder)

        async def progress() -> AsyncGenerator[DraftTicked, None]:
            async with self._lifecycle.opened(run_id) as opened:
                access = self._credentials.access(opened.run.spec)
                async with open_writer(asked, opened.run, access) as work:
                    async with contextlib.aclosing(work.tell()) as told:
                        async for one in told:
                            yield one

        return json_lines(progress(), self._touch)

    async def begin(self, request: Request) -> Response:
        """The servers that its agent reaches; nobody is asked yet."""
        asked = await body_of(request, BeginWithTools)
        folder = path_of(asked.folder)
        file = path_of(asked.servers) if asked.servers else None
        await asyncio.to_thread(begin_with_tools, folder, file)
        return json_of(await asyncio.to_thread(views_of, folder))

    async def finish(self, request: Request) -> Response:
        asked = await body_of(request, FinishProject)
        folder = await asyncio.to_thread(finish_project, asked)
        return json_of(await asyncio.to_thread(self._library.open_project, folder))
