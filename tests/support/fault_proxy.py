"""Unreliable network on localhost: a TCP proxy with faults that can be switched at any time."""

import asyncio
import contextlib
import socket
import struct
from typing import Self

from tests.support.loop_thread import InLoop


class FaultProxy:
    """Context manager; `port` leads to `target`. All methods may be called from any thread."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.one_byte = False
        """Send every byte separately."""
        self.delay_s = 0.0
        """Delay before every piece in both directions."""
        self.passed_bytes = 0
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._talks: set[asyncio.Task[None]] = set()
        self._loop = InLoop("fault proxy")
        self._passable = asyncio.Event()
        self._passable.set()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._loop.do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.do(self._close())
        self._loop.end()

    def black_hole(self, on: bool = True) -> None:
        """Hold back everything in both directions, without closing.

        It arrives when lifted, like after TCP retransmission.
        """
        self._loop.call(self._passable.clear if on else self._passable.set)

    def drop(self) -> None:
        """Close all connections in good order."""

        async def work() -> None:
            for near, far in list(self._pairs):
                near.close()
                far.close()

        self._loop.do(work())

    def half_close(self) -> None:
        """Close the sending direction of the target; it can still receive."""

        async def work() -> None:
            for near, _ in list(self._pairs):
                with contextlib.suppress(OSError):
                    near.write_eof()

        self._loop.do(work())

    def reset(self) -> None:
        """End all connections with RST."""

        async def work() -> None:
            for near, far in list(self._pairs):
                sock: socket.socket = near.get_extra_info("socket")
                linger = struct.pack("ii", 1, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                near.transport.abort()
                far.transport.abort()

        self._loop.do(work())

    def cut(self, seconds: float) -> None:
        """Reset all connections and refuse new ones for `seconds`; returns immediately."""
        self._loop.do(self._refuse())
        self.reset()

        async def later() -> None:
            await asyncio.sleep(seconds)
            await self._listen()

        async def start() -> None:
            task = asyncio.get_running_loop().create_task(later())
            self._talks.add(task)
            task.add_done_callback(self._talks.discard)

        self._loop.do(start())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server:
            self._server.close()
            self._server = None

    async def _close(self) -> None:
        await self._refuse()
        for task in list(self._talks):
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._talks.add(task)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._talks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, far = await asyncio.open_connection("127.0.0.1", self.target)
        pair = (writer, far)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pass(reader, far), self._pass(there, writer))
        finally:
            self._pairs.discard(pair)
            far.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._passable.wait()
            self.passed_bytes += len(data)
            pieces = [data[at : at + 1] for at in range(len(data))]
            for piece in pieces if self.one_byte else [data]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        with contextlib.suppress(OSError):
            writer.write_eof()
