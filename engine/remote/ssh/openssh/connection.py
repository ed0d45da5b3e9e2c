"""Connections by the installed `ssh`: hardware keys, Kerberos and other methods AsyncSSH lacks.

One `ssh` process is the ControlMaster with a socket in a private folder. Every command is another
`ssh` that uses this socket and never connects by itself.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import Any

import psutil

from engine.protocol.problems import LaunchError, Problem
from engine.remote.ssh import problems
from engine.remote.ssh.address import parse_address
from engine.remote.ssh.base import (
    AUTHENTICATE_S,
    LONGEST_BYTES,
    REACH_S,
    Asker,
    Connection,
    Done,
    prepare_socket,
)
from engine.remote.ssh.commands import (
    ENDING_S,
    PROCESS,
    by_sh,
    end_group,
    number_of,
    run_with_input,
)
from engine.remote.ssh.openssh.command_line import OpenSSH, Resolved, destination
from engine.remote.ssh.openssh.master import Master
from engine.remote.ssh.openssh.prompts import Prompts
from engine.remote.ssh.openssh.stderr import explain, last_line
from engine.remote.ssh.problems import Place
from engine.remote.ssh.questions import Clock

SUFFIX_BYTES = 20
"""Bytes that `ssh` appends to the path of a socket while it creates it."""


async def connect_by_openssh(
    address: str, asker: Asker, config: Path | None = None, known_hosts: Path | None = None
) -> "OpenSSHConnection":
    """Connect by the program `ssh`. `asker` puts questions to the person, `config` replaces the SSH
    configuration, `known_hosts` is used if that names no such file. Raises LaunchError."""
    to = destination(parse_address(address))
    folder = await asyncio.to_thread(_private_folder)
    try:
        way = await SshRoute.of(OpenSSH(folder, config, known_hosts), to)
        master = Master(way.ssh)
        try:
            while not await _attempt(way, master, asker):
                master = Master(way.ssh)
        except BaseException:
            await master.close()
            raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return OpenSSHConnection(way, master)


def _private_folder() -> Path:
    """Create a folder (0700) whose path is short enough for the socket of `ssh`."""
    for place in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="atl-", dir=place))
        if len(os.fsencode(folder)) <= LONGEST_BYTES - SUFFIX_BYTES:
            return folder
        folder.rmdir()
    raise problems.socket_unusable(tempfile.gettempdir(), "its path is too long for a socket")


class SshRoute:
    """Route to one server, with all names that `ssh` may use for the servers on it."""

    def __init__(self, ssh: OpenSSH, to: list[str], resolved: Resolved) -> None:
        self.ssh = ssh
        self.to = to
        self.resolved = resolved
        self.goal = Place(resolved.server)
        self.places: dict[str, Place] = {}
        self._all = {resolved.server: resolved}

    @classmethod
    async def of(cls, ssh: OpenSSH, to: list[str]) -> "SshRoute":
        ssh.write_config(ask=False)
        resolved = await ssh.resolve(to)
        if not resolved.strict:
            ssh.write_config(ask=True)
        way = cls(ssh, to, resolved)
        via = ""
        for jump in resolved.jumps:
            via = (await way._add(destination(parse_address(jump)), via)).server
        way.goal = Place(resolved.server, via)
        way._name(resolved, to[-1], way.goal)
        return way

    async def _add(self, to: list[str], via: str) -> Place:
        resolved = await self.ssh.resolve(to)
        place = Place(resolved.server, via, self.resolved.server)
        self._name(resolved, to[-1], place)
        return place

    def _name(self, resolved: Resolved, alias: str, place: Place) -> None:
        self._all[resolved.server] = resolved
        host, user = resolved.host, resolved.user
        names = (host, f"{host}:{resolved.port}", f"{user}@{host}", f"{user}@{alias}")
        for name in (*names, alias, resolved.known_as):
            self.places[name] = place

    async def place_of(self, process: int, master: int) -> Place:
        """Server that the `ssh` process with PID `process` talks to: a jump host, or the target if
        `master` is the same PID or the process is unknown."""
        if process == master:
            return self.goal
        try:
            words = psutil.Process(process).cmdline()[1:]
        except psutil.Error:
            return self.goal
        if "-W" not in words:
            return self.goal
        for option in ("-F", "-W"):
            if option in words:
                at = words.index(option)
                del words[at : at + 2]
        resolved = await self.ssh.resolve(words)
        known = [one for one in self.places.values() if one.server == resolved.server]
        return known[0] if known else await self._add(words, "")

    def changed(self, place: Place, shown: str) -> LaunchError:
        """Error for a server whose host key (`shown`) differs from the known one."""
        from engine.remote.ssh.asyncssh.known_hosts import read_entries
        from engine.remote.ssh.host_keys import describe

        resolved = self._all[place.server]
        name = resolved.known_as.lower()
        known = read_entries(resolved.known_hosts, name)
        was, where = (describe(known[0].key), known[0].where) if known else ("another kind", "")
        return problems.host_key_changed(place, was, shown, where, f"ssh-keygen -R '{name}'")

    def why(self, stderr: str, prompts: Prompts) -> LaunchError:
        if key := prompts.passphrase_failed():
            return problems.passphrase_wrong(self.goal, key, 3)
        error = explain(stderr, self.places, self.goal, self.resolved.keys, bool(prompts.typed))
        if error.problem.code == "ssh.no_key_accepted" and (expired := self._expired()):
            return problems.certificate_expired(self.goal, [*self.resolved.keys, *expired])
        return error

    def _expired(self) -> list[str]:
        from engine.remote.ssh.asyncssh.keys import (
            describe_certificate,
            has_expired,
            read_certificate,
        )

        beside = [f"{key}-cert.pub" for key in self.resolved.keys]
        names = [*self.resolved.certificates, *beside]
        found = [read_certificate(Path(name).expanduser()) for name in names]
        return [describe_certificate(one) for one in found if one and has_expired(one)]


async def _attempt(way: SshRoute, master: Master, asker: Asker) -> bool:
    """Connect once; False if another attempt may succeed, after a slow host key confirmation."""
    hops = len(way.resolved.jumps) + 1
    seconds = hops * (REACH_S + AUTHENTICATE_S)
    clock = Clock(seconds)
    prompts = Prompts(
        way.ssh.folder, asker, clock, lambda one: way.place_of(one, master.pid), way.changed
    )
    try:
        async with clock:
            await master.start(way.to, await prompts.start())
            ready = asyncio.create_task(master.ready())
            try:
                either: tuple[asyncio.Future[Any], ...] = (ready, prompts.failure)
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if prompts.failure.done():
                    raise prompts.failure.result()
                if ready.result():
                    return True
            finally:
                ready.cancel()
    except TimeoutError:
        raise problems.auth_timed_out(way.goal, seconds) from None
    finally:
        await prompts.close()
    error = way.why(master.stderr, prompts)
    if prompts.confirmed and error.problem.code == "ssh.closed":
        await master.close()
        return False
    raise error


class OpenSSHConnection(Connection):
    def __init__(self, way: SshRoute, master: Master) -> None:
        self._way = way
        self._master = master
        self._closing = False
        self.server = way.goal.server

    async def run(
        self,
        command: str,
        input: bytes | AsyncIterable[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
    ) -> Done:
        process = await self._through(
            "-T", line=by_sh(command, announce=True), fed=input is not None
        )
        stderr = bytearray()
        assert process.stdout
        assert process.stderr
        try:
            out, err = await run_with_input(
                process.stdin, process.stdout, process.stderr, input, on_stdout, stderr.extend
            )
            code = await process.wait()
        except BaseException:
            await asyncio.shield(self._end(process, stderr))
            raise
        found = PROCESS.search(stderr)
        if code == 255 and not found:
            raise await self._failed(err)
        if code == 255 and not await self._is_alive():
            raise problems.lost(self.server, last_line(self._master.stderr))
        return Done(code, out, PROCESS.sub(b"", err, count=1))

    async def _through(
        self, *options: str, line: str | None = None, fed: bool = False
    ) -> asyncio.subprocess.Process:
        """Start an `ssh` process that uses the ControlMaster and never connects by itself."""
        if not self._master.alive:
            raise problems.lost(self.server, last_line(self._master.stderr))
        own = ["-S", str(self._way.ssh.control), "-o", "BatchMode=yes", "-o", "ProxyCommand=false"]
        words = [*own, *options, *self._way.to, *([line] if line else [])]
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        ssh = self._way.ssh
        return await asyncio.create_subprocess_exec(
            *(ssh.command(*words) if line else ssh.bare(*words)),
            stdin=pipe if fed else nothing,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    async def _end(self, process: asyncio.subprocess.Process, stderr: bytearray) -> None:
        """End a command that is no longer wanted, here and on the server."""
        assert process.stderr
        number = await number_of(process.stderr, stderr) if self._master.alive else None
        if number is not None and process.returncode is None and self._master.alive:
            killing = await self._through("-T", line=by_sh(end_group(number)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(killing.communicate(), ENDING_S)
            await _stop(killing)
        await _stop(process)

    async def _is_alive(self) -> bool:
        """Whether the ControlMaster answers; a breaking connection takes a moment to end."""
        if not self._master.alive:
            return False
        asking = await self._through("-O", "check")
        await asking.communicate()
        return asking.returncode == 0

    async def _failed(self, err: bytes) -> LaunchError:
        """Convert ssh's stderr (`err`) of a command that could not be started into an error."""
        if not await self._is_alive():
            return problems.lost(self.server, last_line(self._master.stderr))
        return problems.no_session(self.server, last_line(err.decode(errors="replace")))

    async def forward(self, port: int, socket: Path) -> None:
        prepare_socket(socket)
        await self._try_forwarding(port)
        asking = await self._through("-O", "forward", "-L", f"{socket}:127.0.0.1:{port}")
        _, err = await asking.communicate()
        if asking.returncode:
            raise problems.socket_unusable(str(socket), last_line(err.decode(errors="replace")))
        socket.chmod(0o600)

    async def _try_forwarding(self, port: int) -> None:
        """Check that forwarding is allowed, by the stderr of the ControlMaster."""
        before = len(self._master.stderr)
        trying = await self._through("-W", f"127.0.0.1:{port}")
        await trying.communicate()
        if not await self._is_alive():
            raise problems.lost(self.server, last_line(self._master.stderr))
        if trying.returncode and "administratively prohibited" in self._master.stderr[before:]:
            raise problems.forwarding_forbidden(self.server, port)

    async def wait_closed(self) -> Problem | None:
        await self._master.ended()
        if self._closing:
            return None
        return problems.lost(self.server, last_line(self._master.stderr)).problem

    async def close(self) -> None:
        self._closing = True
        await self._master.close()
        await asyncio.to_thread(shutil.rmtree, self._way.ssh.folder, ignore_errors=True)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
