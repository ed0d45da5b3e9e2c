"""Calls about servers that train for us."""

from engine.client.transport import Transport
from engine.protocol.hosts import ActOnHost, AddHost, Answer, HostList


class HostCalls(Transport):
    """The list, what is done with one, and answers to what it asks."""

    async def hosts(self, after: int = 0, wait_s: float = 0.0) -> HostList:
        """With `after` as soon as the list is newer than that, at most after `wait_s` (20)."""
        params = {"after": after, "wait": wait_s}
        return await self._ask("GET", "/hosts", HostList, params=params)

    async def known_hosts(self) -> HostList:
        """With the aliases of the user's SSH configuration that are not in the list."""
        return await self._ask("GET", "/hosts/known", HostList)

    async def add_host(self, request: AddHost) -> HostList:
        return await self._ask("POST", "/hosts", HostList, body=request)

    async def act_on_host(self, name: str, request: ActOnHost) -> HostList:
        return await self._ask("POST", f"/hosts/{name}", HostList, body=request)

    async def answer_host(self, name: str, request: Answer) -> None:
        """Raises Refused where nobody waits for it any more."""
        await self._send("POST", f"/hosts/{name}/answer", json=request.model_dump(mode="json"))
