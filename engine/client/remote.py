"""Calls about remote servers."""

from collections.abc import AsyncGenerator
from typing import Annotated

from pydantic import Field, TypeAdapter

from engine.client.transport import Transport
from engine.protocol.requests.remote import (
    ActOnHost,
    AddHost,
    Answer,
    HostList,
    Moved,
    MoveTicked,
    SendRun,
)

_MOVED: TypeAdapter[MoveTicked | Moved] = TypeAdapter(
    Annotated[MoveTicked | Moved, Field(discriminator="kind")]
)


class HostCalls(Transport):
    """Calls about the server list, server actions, and questions of servers to the person."""

    async def hosts(self, after: int = 0, wait_s: float = 0.0) -> HostList:
        """Wait up to `wait_s` (at most 20) seconds until the revision of the server list exceeds
        `after`, and return the list, even if it has not changed."""
        params = {"after": after, "wait": wait_s}
        return await self._ask("GET", "/hosts", HostList, params=params)

    async def known_hosts(self) -> HostList:
        """List the aliases of the user's SSH configuration that are not in the server list."""
        return await self._ask("GET", "/hosts/known", HostList)

    async def add_host(self, request: AddHost) -> HostList:
        return await self._ask("POST", "/hosts", HostList, body=request)

    async def act_on_host(self, name: str, request: ActOnHost) -> HostList:
        return await self._ask("POST", f"/hosts/{name}", HostList, body=request)

    def fetch_checkpoint(self, run_id: str, step: int) -> AsyncGenerator[MoveTicked | Moved, None]:
        """Download a remote run's checkpoint: yields progress, then its folder. Can be resumed."""
        return self._records(f"/runs/{run_id}/checkpoints/{step}/fetch", None, _MOVED)

    def bring_home(self, run_id: str) -> AsyncGenerator[MoveTicked | Moved, None]:
        return self._records(f"/runs/{run_id}/bring_home", None, _MOVED)

    def send_run(self, run_id: str, request: SendRun) -> AsyncGenerator[MoveTicked | Moved, None]:
        return self._records(f"/runs/{run_id}/send", request, _MOVED)

    async def answer_host(self, name: str, request: Answer) -> None:
        """Answer a login prompt (password …) of server `name`. Raises Refused if the prompt has
        expired."""
        await self._send("POST", f"/hosts/{name}/answer", json=request.model_dump(mode="json"))
