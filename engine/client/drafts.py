"""Calls about projects that an LLM writes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from engine.client.transport import Transport
from engine.protocol.config.mcp import ServerViews
from engine.protocol.records.runs import ProjectView
from engine.protocol.requests.drafts import BeginWithTools, DescribeTask, DraftTicked, FinishProject


class AuthoringCalls(Transport):
    """A draft out of a description, and a project out of a draft."""

    async def write_draft(self, request: DescribeTask) -> AsyncGenerator[DraftTicked, None]:
        """Progress of a draft, before and after each question; leaving the loop stops. Answers of
        an earlier call cost nothing."""
        async with aclosing(self._told("/drafts", request, DraftTicked)) as told:
            async for one in told:
                yield one

    async def finish_project(self, request: FinishProject) -> ProjectView:
        """Raises ConfigError where the draft cannot be trained on."""
        return await self._ask("PUT", "/drafts", ProjectView, request)

    async def begin_with_tools(self, request: BeginWithTools) -> ServerViews:
        """Raises ConfigError where the file names no servers, or the folder holds something else.
        What it returns was not looked at."""
        return await self._ask("POST", "/drafts/tools", ServerViews, request)
