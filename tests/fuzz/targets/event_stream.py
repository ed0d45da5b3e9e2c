"""Server-sent events as bytes in pieces of any size (`client.bounded.lines_of`)."""

import random
from collections.abc import AsyncIterator

import httpx

from engine.client.transport import lines_of
from engine.protocol.events.run import decode
from engine.protocol.problems import LaunchError
from tests.fuzz.mutation import mutate as change
from tests.fuzz.targets import events

REFUSALS = (LaunchError, ValueError)
MOST = 2**16
MOST_PIECES = 2**14
"""Each piece costs microseconds in httpx: more pieces would measure httpx only."""


def seeds() -> list[bytes]:
    lines = events.seeds()
    return [
        b": beat\n\n" + b"".join(b"data: " + line + b"\n\n" for line in lines[n::4])
        for n in range(4)
    ]


def mutate(seed: bytes, rng: random.Random) -> bytes:
    """The first byte determines the size of the pieces."""
    return bytes((rng.randrange(256),)) + change(seed, rng)


async def execute(data: bytes) -> None:
    rest = data[1:]
    size = max(data[0] * 37 + 1 if data else 1, len(rest) // MOST_PIECES)

    async def blocks() -> AsyncIterator[bytes]:
        for start in range(0, len(rest), size):
            yield rest[start : start + size]

    request = httpx.Request("GET", "http://127.0.0.1/runs/x/ticks")
    response = httpx.Response(200, content=blocks(), request=request)
    received = []
    async for line in lines_of(response, MOST):
        assert len(line) <= len(rest)
        received.append(line)
        if line.startswith("data:"):
            decode(line[5:].strip())
    assert "\n".join(received).replace("\r", "") == rest.decode().removesuffix("\n").replace(
        "\r", ""
    )
