"""A file to the far side, by `cat` over a channel: it needs nothing there but a shell."""

from collections.abc import AsyncIterable

from engine.remote.ssh.base import Connection
from engine.remote.ssh.commands import receive_file
from engine.remote.ssh.problems import upload_failed


async def upload(
    connection: Connection, data: AsyncIterable[bytes], path: str, begin: int, mode: int
) -> None:
    done = await connection.run(receive_file(path, begin, mode), data)
    if done.code:
        raise upload_failed(connection.server, path, done.err.decode(errors="replace"))
