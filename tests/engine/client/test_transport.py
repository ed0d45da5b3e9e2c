"""Connections of the engine's client, over a real server."""

import asyncio
import gc
from collections import Counter

import httpx
import pytest

from engine.client import EngineClient, transport
from engine.protocol.problems import AtelierError

ANSWER = b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n"


async def _close_after(ticks: int, port: int) -> str:
    """Close the client so many turns of the loop after a request; returns the request's error."""
    client = EngineClient(port, "token")
    request = asyncio.create_task(client.runs())
    for _ in range(ticks):
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(AtelierError) as raised:
        await request
    return raised.value.problem.code


def test_client_closed_during_a_request_closes_its_connection() -> None:
    """A connection that stays open fails the test: its warning is an error."""
    opened, codes = Counter[str](), Counter[str]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened["all"] += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ANSWER)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            opened["closed"] += 1
            writer.close()

    async def job() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for ticks in range(30):
                codes[await _close_after(ticks, port)] += 1
                gc.collect()
            async with asyncio.timeout(5):
                while opened["closed"] < opened["all"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(job())
    assert opened["all"] > 10
    assert codes["engine.unreachable"] > 10


def test_cancelled_request_closes_all_expired_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request that finds them is cancelled at each of its first turns of the loop."""
    limits = httpx.Limits(max_keepalive_connections=20, keepalive_expiry=0.02)
    monkeypatch.setattr(transport, "LIMITS", limits)
    at_once, answered = 5, Counter[str]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.01)
                writer.write(ANSWER)
                answered["all"] += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def job() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            for ticks in range(8):
                async with EngineClient(server.sockets[0].getsockname()[1], "token") as client:
                    requests = [client.runs() for _ in range(at_once)]
                    await asyncio.gather(*requests, return_exceptions=True)
                    await asyncio.sleep(0.04)
                    late = asyncio.create_task(client.runs())
                    for _ in range(ticks):
                        await asyncio.sleep(0)
                    late.cancel()
                    await asyncio.wait([late])
                gc.collect()

    asyncio.run(job())
    assert answered["all"] >= 8 * at_once
