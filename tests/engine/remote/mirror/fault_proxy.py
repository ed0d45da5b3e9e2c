"""TCP proxy with faults: each connection is cut off after a random number of bytes."""

import asyncio
import contextlib
from random import Random
from types import TracebackType
from typing import Self


class FaultProxy:
    """Forward bytes to `target`; with `most` set, a connection ends after at most that many."""

    def __init__(self, rng: Random) -> None:
        self.target = 0
        self._rng = rng
        self._tasks: set[asyncio.Task[None]] = set()
        self.most = 0
        self.cut = 0
        """Number of connections that were cut off."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target)
        budget = [self._rng.randint(1, self.most) if self.most else 2**62]
        pipes = [
            asyncio.create_task(self._forward(client_reader, target_writer, budget)),
            asyncio.create_task(self._forward(target_reader, client_writer, budget)),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            for writer in (target_writer, client_writer):
                writer.transport.abort()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, budget: list[int]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(4096):
                target.write(data[: budget[0]])
                await target.drain()
                budget[0] -= len(data)
                if budget[0] <= 0:
                    self.cut += 1
                    return
