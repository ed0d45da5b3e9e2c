"""Calls about what a run has kept."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from pydantic import Field, TypeAdapter

from engine.client.transport import Transport
from engine.protocol.records.runs import KeptCheckpoint
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.protocol.requests.runs import PinCheckpoint

_EXPORT: TypeAdapter[ExportTicked | ExportReport] = TypeAdapter(
    Annotated[ExportTicked | ExportReport, Field(discriminator="kind")]
)


class CheckpointCalls(Transport):
    """Checkpoints, and exports of them."""

    async def checkpoints(self, run_id: str) -> list[KeptCheckpoint]:
        """Checkpoints with the reasons why they are kept, oldest first."""
        return await self._list(f"/runs/{run_id}/checkpoints", KeptCheckpoint)

    async def pin_checkpoint(self, run_id: str, step: int, wish: PinCheckpoint) -> None:
        path = f"/runs/{run_id}/checkpoints/{step}/pin"
        await self._send("POST", path, content=wish.model_dump_json().encode())

    async def delete_checkpoint(self, run_id: str, step: int) -> None:
        """Raises Refused for the newest, which the run goes on from."""
        await self._send("DELETE", f"/runs/{run_id}/checkpoints/{step}")

    async def export(
        self, run_id: str, step: int | None, request: ExportCheckpoint
    ) -> AsyncGenerator[ExportTicked | ExportReport, None]:
        """Signs of progress, then the report; None is the newest whole checkpoint. Leaving the loop
        cancels it, and nothing is left behind. Raises Refused with what is wrong."""
        path = f"/runs/{run_id}/checkpoints/{step or 0}/export"
        async with aclosing(self._told(path, request, _EXPORT)) as told:
            async for one in told:
                yield one
