"""Calls about models side by side."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from engine.client.transport import Transport
from engine.protocol.requests.arena import ArenaTicked, AskArena, Tally


class ArenaCalls(Transport):
    """The same question to several, and how they stand."""

    async def ask_arena(self, request: AskArena) -> AsyncGenerator[ArenaTicked, None]:
        """Answers as they come; leaving the loop cancels the rest. The first question loads the
        models."""
        async with aclosing(self._told("/arena", request, ArenaTicked)) as told:
            async for one in told:
                yield one

    async def tally(self, project: str) -> Tally:
        """Tally of a project's arena votes."""
        return await self._ask("GET", "/arena", Tally, params={"path": project})
