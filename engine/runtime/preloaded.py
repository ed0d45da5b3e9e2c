"""Server side of a fork server: a process that has imported large libraries and forks a process
for each request on its socket, in 10 ms instead of seconds of imports.

The process computes nothing and has one thread, so that a fork equals a newly started process. Each
process is forked twice: its parent exits at once, and the engine, as subreaper, becomes its parent
and receives its exit status. The server exits with the engine, and after `IDLE_S` without a
request. Standard library only: importable in any environment.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import socket
import sys
import traceback
from typing import Any, NoReturn

IDLE_S = 900.0
"""Seconds without a request after which the server exits and frees its memory."""
LARGEST_REQUEST = 2**17
DESCRIPTORS = 3
"""Number of descriptors of a process: socket, life pipe and log."""
ARGUMENTS = (48, 49)
"""Numbers of the fields `arg_start` and `arg_end` of /proc/self/stat, as proc(5) counts them."""


def freeze() -> None:
    """Freeze the heap, so that forked processes share its memory. Raises SystemExit if an import
    has started a thread, which a fork would lose."""
    if len(os.listdir("/proc/self/task")) > 1:
        raise SystemExit("an import has started a thread: processes cannot be forked safely")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that is shared
    gc.enable()


def serve_forks(requests: socket.socket, life: int, kind: str) -> None:
    """Show this process as the fork server of `kind` processes in `ps`, then fork a process for
    each request on the socket `requests`. Returns when the engine exits (end of file on descriptor
    `life`) or after `IDLE_S` seconds without a request."""
    show_command(f"fork-server of {kind} processes")
    answer_requests(requests, life)


def answer_requests(requests: socket.socket, life: int) -> None:
    """Fork a process for each request on the socket `requests` and send back its PID. Returns when
    the engine exits (end of file on descriptor `life`), when the socket is closed, or after
    `IDLE_S` seconds without a request."""
    while True:
        ready, _, _ = select.select([requests.fileno(), life], [], [], IDLE_S)
        if life in ready or not ready:
            return
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, DESCRIPTORS)
        if not data:
            return
        request = json.loads(data)
        if descriptors:
            pid = _fork_twice(request, descriptors, (requests.fileno(), life))
            requests.send(json.dumps({"pid": pid}).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_twice(request: dict[str, Any], descriptors: list[int], own: tuple[int, ...]) -> int:
    """Fork twice; returns the PID of a process that is now a child of the engine."""
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            pid = os.fork()
            if pid == 0:
                _become_process(request, descriptors, (*own, read, write))
            os.write(write, str(pid).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(middle, 0)
    with os.fdopen(read, "rb") as answer:
        return int(answer.read())


def _become_process(
    request: dict[str, Any], descriptors: list[int], foreign: tuple[int, ...]
) -> NoReturn:
    """Set up session, descriptors, folder and variables, then run the requested module."""
    code = 1
    try:
        os.setsid()
        for descriptor in foreign:
            os.close(descriptor)
        line, life, log = descriptors
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        module = request["module"]
        sys.argv = [module, str(line), str(life)]
        show_command(f"{sys.executable}\0-m\0{module}\0{line}\0{life}")
        importlib.import_module(module).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - the interpreter would print it, and exit with 1
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def show_command(command: str) -> None:
    """Set the command line that `ps` shows, truncated to the length of the original one."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = (int(fields[number - 3]) for number in ARGUMENTS)
    if start:
        room = end - start
        ctypes.memmove(start, command.encode()[: room - 1].ljust(room, b"\0"), room)
