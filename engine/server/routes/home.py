"""Routes for a home machine: lease, uploaded folders, downloads of files, requests to home."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.models.registry import cache_dir
from engine.protocol.problems import Refused
from engine.protocol.requests.home import HomeRequestList, HomeResponse, Lease
from engine.protocol.requests.sync import Begun, SyncFolder
from engine.remote.sync.incoming import Incoming
from engine.remote.sync.manifest import listed, manifest
from engine.server.bodies import Routes, body_of, json_of, number_of, text_of
from engine.server.composition import Services
from engine.storage.run_folder.images import INPUTS

EXPORTS = "exports"
LONGEST_WAIT_S = 20.0
BLOCK = 2**18
NEVER_SENT = ("run.db*", "lock", "ballast", ".arriving/", "replica.json", f"/{INPUTS}/")
"""Files of a run folder that belong to this machine; the database is sent in pages."""


class HomeRoutes:
    def __init__(self, services: Services) -> None:
        workspace = services.workspace
        self._incoming = Incoming(workspace, {"workspace": workspace, "models": cache_dir()})
        self._library, self._lifecycle = services.library, services.lifecycle
        self._requests, self._lease = services.home_requests, services.home_lease
        self._touch = services.touch
        self._committing = asyncio.Lock()

    def routes(self) -> Routes:
        return [
            ("POST", "/lease", self.lease),
            ("POST", "/sync/missing", self.missing),
            ("POST", "/sync/commit", self.commit),
            ("GET", "/sync/contents/{sha256}", self.received_bytes),
            ("PUT", "/sync/contents/{sha256}", self.take),
            ("GET", "/runs/{run}/files", self.files),
            ("DELETE", "/runs/{run}/files", self.forget_files),
            ("GET", "/runs/{run}/file", self.file),
            ("POST", "/runs/{run}/hand_over", self.hand_over),
            ("GET", "/home-requests", self.home_requests),
            ("POST", "/home-requests/{request_id}", self.answer_home_request),
        ]

    async def lease(self, request: Request) -> Response:
        """Lease the engine to the home machine in the body, or renew that lease."""
        return json_of(self._lease.take(await body_of(request, Lease)))

    # Folders that come

    async def missing(self, request: Request) -> Response:
        folder = await body_of(request, SyncFolder)
        return json_of(await asyncio.to_thread(self._incoming.missing, folder))

    async def commit(self, request: Request) -> Response:
        folder = await body_of(request, SyncFolder)
        async with self._committing:
            synced = await asyncio.to_thread(self._incoming.commit, folder)
        return json_of(synced)

    async def received_bytes(self, request: Request) -> Response:
        return json_of(Begun(bytes=self._incoming.received_bytes(request.path_params["sha256"])))

    async def take(self, request: Request) -> Response:
        sha256 = request.path_params["sha256"]
        offset, size = (int(number_of(request, name)) for name in ("offset", "bytes"))
        here = await self._incoming.take(sha256, offset, self._stream(request))
        if here >= size:
            await asyncio.to_thread(self._incoming.finish, sha256, size)
        return json_of(Begun(bytes=here))

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        async for block in request.stream():
            self._touch()
            yield block

    # Files of runs that go

    async def files(self, request: Request) -> Response:
        """Respond with name, size and hash of a run's files in its folder `below` (empty: all)."""
        folder = self._library.folder(request.path_params["run"])
        below = request.query_params.get("below", "")
        found = await asyncio.to_thread(manifest, folder, NEVER_SENT, below)
        return json_of(found)

    async def forget_files(self, request: Request) -> Response:
        """Delete a run's exports that were made for download; `below` must name their folder."""
        folder = self._library.folder(request.path_params["run"])
        if request.query_params.get("below") != EXPORTS:
            raise Refused.of(
                "sync.unknown", "Only the exports of a run can be deleted with this request."
            )
        await asyncio.to_thread(shutil.rmtree, folder / EXPORTS, ignore_errors=True)
        return Response(status_code=204)

    async def file(self, request: Request) -> Response:
        folder = self._library.folder(request.path_params["run"])
        wanted, offset = text_of(request, "path"), int(number_of(request, "offset"))
        file = await asyncio.to_thread(_inside, folder, wanted)

        async def blocks() -> AsyncIterator[bytes]:
            with file.open("rb") as source:
                source.seek(offset)
                while block := await asyncio.to_thread(source.read, BLOCK):
                    self._touch()
                    yield block

        return StreamingResponse(blocks(), media_type="application/octet-stream")

    async def hand_over(self, request: Request) -> Response:
        """Delete a run that has moved to another machine. Raises Refused while it is active."""
        run_id = request.path_params["run"]
        async with self._lifecycle.resting(run_id) as folder:
            await asyncio.to_thread(shutil.rmtree, folder)
        self._library.forget(run_id)
        return Response(status_code=204)

    # HomeRequests

    async def home_requests(self, request: Request) -> Response:
        """Respond with the runs' requests to the home machine that it has not fetched yet; wait up
        to `wait` seconds for one."""
        wait = min(number_of(request, "wait"), LONGEST_WAIT_S)
        return json_of(HomeRequestList(requests=await self._requests.waiting(wait)))

    async def answer_home_request(self, request: Request) -> Response:
        done = await body_of(request, HomeResponse)
        self._requests.done(request.path_params["request_id"], done)
        return Response(status_code=204)


def _inside(folder: Path, wanted: str) -> Path:
    """Path of a file that may be downloaded. Raises Refused for any other."""
    if wanted not in {name for name, _ in listed(folder, NEVER_SENT, wanted)}:
        raise Refused.of("sync.unknown", f"This run has no file {wanted}.")
    return folder / wanted
