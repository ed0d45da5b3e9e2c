"""Command lines for remote servers, and their input and output.

sshd hands a command to the login shell, which may be csh or fish. The command is therefore quoted
in a form that all shells parse alike: one pair of single quotes without special characters inside.
"""

import asyncio
import re
import shlex
from collections.abc import AsyncIterable, Callable
from contextlib import suppress
from typing import Any, Protocol

from engine.protocol.problems import LaunchError
from engine.runtime.closing import cancel

CHUNK_BYTES = 1 << 16
ANNOUNCING_S = 5.0
ENDING_S = 5.0
KEPT_BYTES = 1 << 20
"""Bytes kept of stderr, from its end."""
MOST_OUT_BYTES = 1 << 24
"""Size limit of stdout without a callback; no command of Atelier prints more."""
PROCESS = re.compile(rb"\x1eprocess (\d+)\x1e\n")
"""First line on stderr of a command with `announce`: its process number."""
_ANNOUNCE = "printf '\\036process %s\\036\\n' $$ >&2\n"


class Reader(Protocol):
    async def read(self, n: int = -1) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


def by_sh(command: str, announce: bool = False) -> str:
    """Command line that runs `command` by /bin/sh under any login shell, which /bin/sh then
    replaces. With `announce`, the PID, which is also the process group id, is printed first on
    stderr in the form `PROCESS`. Raises ValueError for a NUL."""
    if "\0" in command:
        raise ValueError("a command line cannot contain a NUL character")
    if announce:  # a shell of its own, whose end by a signal this one tells as 128 + n
        command = f"{_ANNOUNCE}/bin/sh -c {shlex.quote(command)}\nexit $?"
    coded = "".join(map(_plain, command.encode()))
    if coded == command:
        return f"exec /bin/sh -c '{coded}'"
    decode = 'c=$(printf %b. "$1"); shift; eval "${c%.}"'
    return f"exec /bin/sh -c '{decode}' sh '{coded}'"


def _plain(byte: int) -> str:
    """Encode a byte so that no shell interprets it between single quotes; printf decodes it."""
    return chr(byte) if 32 <= byte < 127 and byte not in b"'\\!" else f"\\0{byte:03o}"


def receive_file(path: str, begin: int, mode: int) -> str:
    """Shell command that writes its stdin into file `path` from byte `begin` on, truncating the
    file there; it fails if the file is shorter. `mode` is the final file mode."""
    file = shlex.quote(path if path.startswith("/") else f"./{path}")
    if begin:
        ready = (
            f"size=$(wc -c < {file}) || exit 1; "
            f'[ "$size" -ge {begin} ] || {{ echo "it has only $size bytes" >&2; exit 1; }}; '
            f"dd if=/dev/null of={file} bs=1 seek={begin} 2>/dev/null || exit 1"
        )
    else:
        ready = f": > {file} || exit 1"
    return f"umask 077; {ready}; chmod 600 {file} && cat >> {file} && chmod {mode:o} {file}"


async def run_with_input(
    stdin: Writer | None,
    stdout: Reader,
    stderr: Reader,
    input: bytes | AsyncIterable[bytes] | None,
    on_out: Callable[[bytes], None] | None,
    on_err: Callable[[bytes], None] | None = None,
) -> tuple[bytes, bytes]:
    """Write `input` to a command and read its output until both streams end; returns (stdout, or
    nothing if `on_out` receives it in chunks; the end of stderr). `on_err` receives stderr in
    chunks. Input that the command no longer accepts is dropped; exceptions of `input` and `on_out`
    are raised."""
    feeding = asyncio.create_task(_feed(stdin, input))
    output = asyncio.ensure_future(asyncio.gather(_read(stdout, on_out), _read_end(stderr, on_err)))
    both: tuple[asyncio.Future[Any], ...] = (feeding, output)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()
        return await output
    finally:
        await cancel(*both)


async def number_of(stderr: Reader, received: bytearray) -> int | None:
    """Read the PID that a remote command prints first on stderr. `received` is the stderr read so
    far, extended in place. None after `ANNOUNCING_S` seconds, or if stderr ends first."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ANNOUNCING_S):
            while not PROCESS.search(received) and (chunk := await stderr.read(CHUNK_BYTES)):
                received += chunk
    number = PROCESS.search(received)
    return int(number[1]) if number else None


def end_group(number: int) -> str:
    """Command that ends the process group `number` of another remote command and its child
    processes. SSH signals do not suffice: OpenSSH's server passes none on to root."""
    return f"kill -TERM -{number}"


async def _feed(stdin: Writer | None, input: bytes | AsyncIterable[bytes] | None) -> None:
    if stdin is None:
        return
    try:
        if isinstance(input, bytes):
            for begin in range(0, len(input), CHUNK_BYTES):
                stdin.write(input[begin : begin + CHUNK_BYTES])
                await stdin.drain()
        elif input is not None:
            async for chunk in input:
                stdin.write(chunk)
                await stdin.drain()
        stdin.write_eof()
    except (BrokenPipeError, ConnectionResetError):
        return  # it wants no more; its exit status says what that means


async def _read(stdout: Reader, on_chunk: Callable[[bytes], None] | None) -> bytes:
    output = bytearray()
    while chunk := await stdout.read(CHUNK_BYTES):
        if on_chunk:
            on_chunk(chunk)
        else:
            output += chunk
            if len(output) > MOST_OUT_BYTES:
                raise LaunchError.of(
                    "ssh.too_much_said",
                    f"A command on the server printed more than {MOST_OUT_BYTES >> 20} MiB.",
                    "Check what your login shell on the server starts.",
                )
    return bytes(output)


async def _read_end(stderr: Reader, on_chunk: Callable[[bytes], None] | None) -> bytes:
    end = bytearray()
    while chunk := await stderr.read(CHUNK_BYTES):
        if on_chunk:
            on_chunk(chunk)
        end += chunk
        del end[:-KEPT_BYTES]
    return bytes(end)
