"""Find the running engine of a workspace on this machine, or start one; verify it before use.

The engine's discovery file (0600, in a 0700 folder) contains port and token. The program that
listens on the port must first prove, by an HMAC over a nonce, that it has the token; only then is
the token sent.
"""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import subprocess
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import httpx
import platformdirs

from engine.launcher.interpreters import (
    Interpreter,
    chosen_interpreters,
    given_interpreter,
    why_broken,
)
from engine.protocol import API_VERSION
from engine.protocol.problems import LaunchError
from engine.protocol.requests.runs import Handshake
from engine.runtime.files import shorten

START_TIMEOUT_S = 60.0
PROOF_PATH = "/proof"


@dataclass(frozen=True)
class Endpoint:
    """Address and token of an authenticated engine."""

    port: int
    token: str
    pid: int
    workspace: Path
    notice: str = ""
    """Message to the person about a deviation from the chosen engine."""


def default_workspace() -> Path:
    """Path from `$ATELIER_WORKSPACE`, else the folder `Atelier` in the user's documents."""
    chosen = os.environ.get("ATELIER_WORKSPACE")
    return Path(chosen) if chosen else Path(platformdirs.user_documents_dir()) / "Atelier"


def runtime_dir() -> Path:
    """The user's private folder for sockets, locks and discovery files, created with mode 0700 if
    needed. Raises LaunchError if it is a link or belongs to another user."""
    session = os.environ.get("XDG_RUNTIME_DIR")  # unset on servers and in containers
    state = Path(platformdirs.user_state_dir("atelier"))
    path = Path(session) / "atelier" if session else state / "runtime"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if path.is_symlink() or status.st_uid != os.getuid():
        raise LaunchError.of(
            "engine.unsafe_folder",
            f"The folder {path} belongs to another user or is a link.",
            "Remove the folder, or set XDG_RUNTIME_DIR to a folder of your own.",
        )
    path.chmod(0o700)
    return path


def discovery_file(workspace: Path) -> Path:
    name = hashlib.sha256(str(workspace.resolve()).encode()).hexdigest()[:16]
    return runtime_dir() / f"engine-{name}.json"


def proof(token: str, nonce: str) -> str:
    """HMAC by which an engine proves that it knows the token, in response to `nonce`; the token
    itself is not sent."""
    return hmac.new(token.encode(), f"atelier-engine:{nonce}".encode(), "sha256").hexdigest()


async def find(workspace: Path) -> Endpoint | None:
    """Return the verified running engine of this workspace, or None. A stale discovery file is
    ignored. Raises LaunchError for an engine of another version."""
    try:
        record = json.loads(discovery_file(workspace).read_text())
        endpoint = Endpoint(
            record["port"], record["token"], record["pid"], Path(record["workspace"])
        )
        major = record["api"][0]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    if not await verify_engine(endpoint.port, endpoint.token):
        return None
    if major != API_VERSION[0]:
        raise LaunchError.of(
            "engine.other_version",
            f"An engine of another version (process {endpoint.pid}) is using this workspace.",
            "Stop its run in the studio of that version, or wait until it ends. Then try again.",
        )
    return endpoint


async def start(workspace: Path, python: str | None = None) -> Endpoint:
    """Start an engine that outlives this process; returns when it accepts requests. With `python`
    only that interpreter is tried. Otherwise the chosen engine is started or, if it is broken, the
    previous or built-in one, with a message in the endpoint's `notice`. Raises LaunchError with the
    engine's last output if none starts."""
    workspace.mkdir(parents=True, exist_ok=True)
    if python:
        return await _start(workspace, given_interpreter(python))
    engines, notices = await asyncio.to_thread(chosen_interpreters)
    for one, after in zip(engines, [*engines[1:], None], strict=True):
        try:
            endpoint = await _start(workspace, one)
        except LaunchError:
            why = await asyncio.to_thread(why_broken, one) if after else ""
            if not why:
                raise
            notices.append(f"The {one.title} did not start ({why}).")
            continue
        if notices:
            notices.append(f"The {one.title} was started instead.")
        return replace(endpoint, notice=" ".join(notices))
    raise AssertionError("our own interpreter is always among them")


async def _start(workspace: Path, engine: Interpreter) -> Endpoint:
    logs = Path(platformdirs.user_log_dir("atelier"))
    logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    log_path = logs / "engine.log"
    shorten(log_path)
    with log_path.open("ab") as log:
        position = log.tell()
        process = _spawn(workspace, engine, log)
    # It outlives us; while we live, somebody must take its exit status.
    threading.Thread(target=process.wait, name="engine exit", daemon=True).start()
    line = await _first_line(process)
    try:
        Handshake.model_validate_json(line)
    except ValueError:
        if endpoint := await find(workspace):  # somebody else was quicker
            return endpoint
        raise _not_started(log_path, position, process.poll()) from None
    endpoint = await find(workspace)
    if endpoint is None:
        raise _not_started(log_path, position, process.poll())
    return endpoint


def _spawn(workspace: Path, engine: Interpreter, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [engine.python, "-m", "engine", "serve", "--workspace", str(workspace)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd=engine.folder,
            env=engine.variables,
        )
    except OSError as error:
        raise LaunchError.of(
            "engine.not_started",
            f"The engine did not start: {engine.python} cannot be run ({error.strerror}).",
            "Choose another interpreter in Settings, or clear that setting.",
            where=engine.python,
        ) from error


async def find_or_start(workspace: Path, python: str | None = None) -> Endpoint:
    return await find(workspace) or await start(workspace, python)


async def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    with process.stdout as stdout:
        try:
            return await asyncio.wait_for(asyncio.to_thread(stdout.readline), START_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            return b""


MOST_PROOF_BYTES = 1024


async def verify_engine(port: int, token: str, socket: Path | None = None) -> bool:
    """Whether the program at this port (or Unix socket) proves that it knows the token; the token
    is not sent."""
    nonce = secrets.token_hex(16)
    url = f"http://127.0.0.1:{port}{PROOF_PATH}"
    uds = str(socket) if socket else None
    transport = httpx.AsyncHTTPTransport(uds=uds, verify=False)  # loopback without TLS
    client = httpx.AsyncClient(timeout=5.0, trust_env=False, transport=transport)
    try:
        async with client as http:
            async with http.stream("GET", url, params={"nonce": nonce}) as answer:
                received = b""
                async for block in answer.aiter_raw():
                    received += block
                    if len(received) > MOST_PROOF_BYTES:
                        return False
    except httpx.HTTPError:
        return False
    return hmac.compare_digest(received, proof(token, nonce).encode())


def _not_started(log_path: Path, position: int, code: int | None) -> LaunchError:
    with log_path.open("rb") as log:
        log.seek(position)
        output = log.read().decode(errors="replace")[-4000:]
    last = output.strip().splitlines()[-1] if output.strip() else "no output"
    ended = f" (exit {code})" if code is not None else ""
    return LaunchError.of(
        "engine.not_started",
        f"The engine did not start{ended}: {last}",
        "Run `atelier doctor`, or read the log.",
        where=str(log_path),
        detail=output,
    )
