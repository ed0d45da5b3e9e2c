"""Responses read with a size limit, so that no server can fill this machine's memory.

Compressed transfers are refused, since an engine never sends them and a small one may unpack to
anything.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress

import httpx

from engine.protocol.problems import LaunchError

MOST_ANSWER_BYTES = 2**27
"""Size limit of one response body, unless the call sets another."""
MOST_LINE_BYTES = 2**25
"""Size limit of one line of a stream."""
PLAIN = {"Accept-Encoding": "identity"}


async def blocks_of(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Blocks of the body as they arrive. Raises LaunchError where the body is compressed."""
    if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise bad_answer(response, "it is compressed, which no engine does")
    raw = response.aiter_raw()
    try:
        async for block in raw:
            yield block
    finally:
        await _end(response, raw)


async def _end(response: httpx.Response, raw: AsyncIterator[bytes]) -> None:
    """End a body that nobody reads to its end. The generators inside httpx wait at a `yield` then,
    and are ended only by reading on; a closed connection ends the reading."""
    await response.aclose()
    with suppress(httpx.StreamError, httpx.TransportError):
        async for _ in raw:
            pass


async def read_body(response: httpx.Response, most: int = MOST_ANSWER_BYTES) -> bytes:
    """The whole body. Raises LaunchError where it is larger than `most` bytes."""
    body = bytearray()
    async with aclosing(blocks_of(response)) as blocks:
        async for block in blocks:
            body += block
            if len(body) > most:
                raise bad_answer(response, f"it is larger than {most / 2**20:.0f} MiB")
    return bytes(body)


async def lines_of(
    response: httpx.Response, most: int = MOST_LINE_BYTES
) -> AsyncGenerator[str, None]:
    """Lines of the body, split at line feeds only, since JSON may hold the other line separators of
    Unicode. Raises LaunchError where a line is longer than `most` bytes or is not UTF-8."""
    rest = bytearray()
    async with aclosing(blocks_of(response)) as blocks:
        async for block in blocks:
            searched = len(rest)
            rest += block
            start = 0
            while (end := rest.find(b"\n", max(searched, start))) >= 0:
                yield _text(rest[start:end], response)
                start = end + 1
            del rest[:start]
            if len(rest) > most:
                raise bad_answer(response, f"a line is longer than {most / 2**20:.0f} MiB")
    if rest:
        yield _text(rest, response)


def _text(line: bytearray, response: httpx.Response) -> str:
    try:
        return line.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise bad_answer(response, "it is no UTF-8") from error


def bad_answer(response: httpx.Response, why: str, detail: str = "") -> LaunchError:
    """Error for a response that no engine of Atelier would send."""
    return LaunchError.of(
        "engine.bad_answer",
        f"The engine sent an answer that cannot be used: {why}.",
        "Bring both engines to the same version. If it is a server that you do not trust, "
        "disconnect it.",
        where=response.request.url.path,
        detail=detail[:2000],
    )
