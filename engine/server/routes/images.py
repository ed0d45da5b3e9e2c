"""Route of the images in the messages of a run."""

import asyncio
import contextlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from engine.protocol.problems import StoreError
from engine.server.bodies import Routes
from engine.server.composition import Services
from engine.storage.run_folder.images import ID, ImageStore, media_type

HEADERS = {
    "cache-control": "private, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}
"""An image never changes under its id, and nothing in it is ever run."""


class ImageRoutes:
    def __init__(self, services: Services) -> None:
        self._hosts, self._library = services.hosts, services.library

    def routes(self) -> Routes:
        return [("GET", "/runs/{run}/images/{image}", self.image)]

    async def image(self, request: Request) -> Response:
        """Respond with an image file. One of a mirrored run is requested from its server if it is
        not here yet."""
        run, image = request.path_params["run"], request.path_params["image"]
        store = ImageStore(self._library.folder(run))
        try:
            file = await asyncio.to_thread(store.find, image)
        except StoreError:
            file = await self._fetched(store, run, image)
        content = await asyncio.to_thread(file.read_bytes)
        return Response(content, media_type=media_type(file), headers=HEADERS)

    async def _fetched(self, store: ImageStore, run: str, image: str) -> Path:
        """Image of a mirrored run, from its server. Raises the StoreError of `find` otherwise."""
        host = await asyncio.to_thread(self._hosts.owner, self._library.folder(run))
        if ID.fullmatch(image) and host is not None and host.tunnel.state == "connected":
            content = await host.tunnel.client.image(run, image)
            with contextlib.suppress(ValueError):  # no image: `find` says that there is none
                await asyncio.to_thread(store.add, content, image)
        return await asyncio.to_thread(store.find, image)
