"""Routes of projects that an LLM writes: the draft as it comes, and the files made of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.autorl.draft_folder import open_place
from engine.autorl.job import writing
from engine.autorl.project_files import begin_with_tools, finish
from engine.integrations.mcp.servers import views_of
from engine.protocol.problems import AtelierError
from engine.protocol.requests.drafts import BeginWithTools, DescribeTask, FinishProject
from engine.server.bodies import body_of, json_of, path_of
from engine.server.services.library import Library
from engine.server.services.supervisor import Supervisor
from engine.storage.run_folder.run import read_spec

Handler = Callable[[Request], Awaitable[Response]]


class AuthoringRoutes:
    """`touch` is told of every line that a listener is sent."""

    def __init__(self, library: Library, supervisor: Supervisor, touch: Callable[[], None]) -> None:
        self.library = library
        self.supervisor = supervisor
        self.touch = touch

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("POST", "/drafts", self.write),
            ("PUT", "/drafts", self.finish),
            ("POST", "/drafts/tools", self.begin),
        ]

    async def write(self, request: Request) -> Response:
        """A line of JSON before and after each question; hanging up asks no more of them."""
        asked = await body_of(request, DescribeTask)
        folder = await open_place(asked)
        run_id = (await asyncio.to_thread(read_spec, folder)).id
        self.library.remember(run_id, folder)

        async def lines() -> AsyncIterator[bytes]:
            try:
                async with self.supervisor.opened(run_id) as opened:
                    access = self.supervisor.access(opened.run.spec)
                    async with writing(asked, opened.run, access) as work:
                        async with contextlib.aclosing(work.tell()) as told:
                            async for one in told:
                                self.touch()
                                yield one.model_dump_json().encode() + b"\n"
            except AtelierError as error:  # the answer has begun: the last line says it
                yield error.problem.model_dump_json().encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def begin(self, request: Request) -> Response:
        """The servers that its agent reaches; nobody is asked yet."""
        asked = await body_of(request, BeginWithTools)
        folder = path_of(asked.folder)
        file = path_of(asked.servers) if asked.servers else None
        await asyncio.to_thread(begin_with_tools, folder, file)
        return json_of(await asyncio.to_thread(views_of, folder))

    async def finish(self, request: Request) -> Response:
        asked = await body_of(request, FinishProject)
        folder = await asyncio.to_thread(finish, asked)
        return json_of(await asyncio.to_thread(self.library.open_project, folder))
