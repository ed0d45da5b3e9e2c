"""Routes of remote servers, and of moving checkpoints and runs between machines.

A move streams a JSON line per progress tick, then its result; hanging up stops it, and the same
request resumes it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.problems import Problem, Refused
from engine.protocol.requests.exports import ExportCheckpoint
from engine.protocol.requests.remote import ActOnHost, AddHost, Answer, Moved, MoveTicked, SendRun
from engine.remote.server import Host
from engine.remote.sync.upload import Progress
from engine.remote.transfers import (
    export_remote,
    fetch_checkpoint,
    move_to_server,
    move_to_this_machine,
)
from engine.runtime.closing import cancel
from engine.server.bodies import Routes, body_of, json_lines, json_of, number_of
from engine.server.composition import Services
from engine.server.services.runs.work import problem_of
from engine.trust.projects import require_run_trust

LONGEST_WAIT_S = 20.0


class HostRoutes:
    def __init__(self, services: Services) -> None:
        self._hosts = services.hosts

    def routes(self) -> Routes:
        return [
            ("GET", "/hosts", self.hosts),
            ("GET", "/hosts/known", self.known),
            ("POST", "/hosts", self.add),
            ("POST", "/hosts/{host}", self.act),
            ("POST", "/hosts/{host}/answer", self.answer),
        ]

    async def hosts(self, request: Request) -> Response:
        """Respond with the list of servers as soon as its revision exceeds `after`, or after `wait`
        seconds at the latest, unchanged."""
        after = int(number_of(request, "after"))
        wait_s = min(number_of(request, "wait"), LONGEST_WAIT_S)
        return json_of(await self._hosts.listed(after, wait_s))

    async def known(self, request: Request) -> Response:
        found = await self._hosts.listed()
        return json_of(found.model_copy(update={"known": await self._hosts.known()}))

    async def add(self, request: Request) -> Response:
        await self._hosts.add((await body_of(request, AddHost)).spec)
        return json_of(await self._hosts.listed())

    async def act(self, request: Request) -> Response:
        await self._hosts.act(request.path_params["host"], await body_of(request, ActOnHost))
        return json_of(await self._hosts.listed())

    async def answer(self, request: Request) -> Response:
        answer = await body_of(request, Answer)
        self._hosts.host(request.path_params["host"]).answer(answer.question, answer.value)
        return Response(status_code=204)


Say = Callable[[BaseModel], None]
Work = Callable[[Say], Coroutine[None, None, BaseModel]]


class TransferRoutes:
    def __init__(self, services: Services) -> None:
        self._hosts, self._library = services.hosts, services.library
        self._lifecycle, self._touch = services.lifecycle, services.touch

    def routes(self) -> Routes:
        return [
            ("POST", "/runs/{run}/checkpoints/{step:int}/fetch", self.fetch),
            ("POST", "/runs/{run}/bring_home", self.bring_home),
            ("POST", "/runs/{run}/send", self.send),
        ]

    async def fetch(self, request: Request) -> Response:
        host, folder = self._there(request)
        step = request.path_params["step"]

        async def work(say: Say) -> BaseModel:
            async with host.moving:
                found = await fetch_checkpoint(host, folder, step, _ticks(say))
            return Moved(path=str(found))

        return self._lines(work)

    async def bring_home(self, request: Request) -> Response:
        host, folder = self._there(request)

        async def work(say: Say) -> BaseModel:
            async with host.moving:
                await move_to_this_machine(host, folder, _ticks(say))
            return Moved(path=str(folder))

        return self._lines(work)

    async def send(self, request: Request) -> Response:
        body = await body_of(request, SendRun)
        host = self._hosts.host(body.host)
        run_id = request.path_params["run"]
        require_run_trust(self._library.folder(run_id))

        async def work(say: Say) -> BaseModel:
            async with host.moving, self._lifecycle.resting(run_id) as folder:
                await move_to_server(host, folder, _ticks(say))
            return Moved(path=str(folder))

        return self._lines(work)

    async def export(self, request: Request, host: Host, folder: Path) -> Response:
        """Export a checkpoint of the run mirrored in `folder` on its server `host`, then download
        the export."""
        body = await body_of(request, ExportCheckpoint)
        step = request.path_params["step"] or None

        async def work(say: Say) -> BaseModel:
            async with host.moving:
                return await export_remote(host, folder, step, body, say)

        return self._lines(work)

    def _there(self, request: Request) -> tuple[Host, Path]:
        folder = self._library.folder(request.path_params["run"])
        host = self._hosts.owner(folder)
        if host is None:
            raise Refused.of("run.here", "This run is already on this machine.")
        return host, folder

    def _lines(self, work: Work) -> Response:
        queue: asyncio.Queue[BaseModel | None] = asyncio.Queue()

        async def carry_out() -> None:
            try:
                queue.put_nowait(await work(queue.put_nowait))
            except OSError as error:
                queue.put_nowait(_not_written(error))
            except Exception as error:  # noqa: BLE001 - the answer has begun: its last line says it
                queue.put_nowait(problem_of(error))
            finally:
                queue.put_nowait(None)

        async def values() -> AsyncGenerator[BaseModel, None]:
            task = asyncio.create_task(carry_out(), name="transfer")
            try:
                while (value := await queue.get()) is not None:
                    yield value
                await task
            finally:
                await cancel(task)

        return json_lines(values(), self._touch)


def _not_written(error: OSError) -> Problem:
    return Problem(
        code="move.not_written",
        message=f"The data could not be written to this machine: {error.strerror}.",
        hint="Check free space and permissions of the folder; received data is kept.",
        where=str(error.filename or ""),
    )


def _ticks(say: Say) -> Progress:
    return lambda done, total: say(MoveTicked(done=done, total=total))
