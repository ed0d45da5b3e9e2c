"""AsyncSSH connections in the engine's event loop.

Each server of the route is a separate connection through the one before, with its own host key,
client keys, prompts and timeout. The agent and X11 are never forwarded to any server.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh

from engine.protocol.problems import LaunchError, Problem
from engine.remote.ssh import problems
from engine.remote.ssh.address import Address, parse_address
from engine.remote.ssh.asyncssh.client import Client
from engine.remote.ssh.asyncssh.failures import explain
from engine.remote.ssh.asyncssh.keys import Keys
from engine.remote.ssh.asyncssh.proxy_command import Proxy
from engine.remote.ssh.base import (
    KEEPALIVE_S,
    REACH_S,
    UNANSWERED,
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
from engine.remote.ssh.host_keys import Trust
from engine.remote.ssh.problems import Place
from engine.remote.ssh.questions import Clock, QuestionService
from engine.remote.ssh.settings import Settings, read_settings


class Hop:
    """Server on the route, with the objects of the connection to it."""

    def __init__(self, settings: Settings, place: Place, asker: Asker) -> None:
        self._settings = settings
        self.place = place
        self._person = QuestionService(asker, place)
        self._keys = Keys(settings, self._person)
        self._trust = Trust(settings, place, self._person)
        self._proxy: Proxy | None = None
        self.client: Client | None = None
        self.connection: asyncssh.SSHClientConnection | None = None

    async def open(self, before: "Hop | None") -> asyncssh.SSHClientConnection:
        """Connect and authenticate to this server, through the jump host `before` (None: directly).
        Raises LaunchError."""
        try:
            while self.connection is None:
                self.connection = await self._attempt(before)
            return self.connection
        except BaseException:
            await self.close()
            raise
        finally:
            await self._keys.close()

    async def _attempt(self, before: "Hop | None") -> asyncssh.SSHClientConnection | None:
        """Connect once; None if another attempt may succeed, since a host key was confirmed."""
        clock = Clock(REACH_S)
        self._person.clock = clock
        self.client = None
        try:
            async with clock:
                return await self._connect(clock, before)
        except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
            if isinstance(error, asyncssh.KeyExchangeFailed) and "host key" not in error.reason:
                raise problems.no_common_algorithm(self.place, error.reason) from error
            await self._close_proxy()
            await self._trust.settle(error)
            return None
        except asyncssh.ChannelOpenError as error:
            assert before is not None
            raise before.leads_nowhere(error, self._settings) from error
        except (asyncssh.Error, OSError, ValueError) as error:
            if self._proxy and (output := await self._proxy.failed()) is not None:
                raise problems.proxy_failed(self.place, self._proxy.command, output) from error
            host = self._settings.host
            raise explain(error, self.place, host, self.client, self._keys.tried, clock) from error

    async def _connect(self, clock: Clock, before: "Hop | None") -> asyncssh.SSHClientConnection:
        def client() -> Client:
            self.client = Client(self._trust, self._keys, self._person, clock)
            return self.client

        address = self._settings.address
        way: dict[str, Any] = {"tunnel": before.connection if before else None}
        if self._settings.proxy and not before:
            self._proxy = Proxy(self._settings.proxy)
            way["sock"] = await self._proxy.start()
        return await asyncssh.connect(
            address.host,
            address.port or (),
            username=address.user or (),
            config=[str(file) for file in self._settings.configs],
            client_factory=client,
            known_hosts=self._trust.on_record,
            server_host_key_algs=self._trust.algorithms(),
            proxy_command=None,
            client_keys=None,  # ours come one by one, from `Keys`
            pkcs11_provider=None,
            agent_forwarding=False,
            x11_forwarding=False,
            x509_trusted_certs=None,
            x509_trusted_cert_paths=[],
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=UNANSWERED,
            connect_timeout=None,  # by `Clock`, which knows of the person
            login_timeout=0,
            command=None,
            request_pty=False,
            encoding=None,
            **way,
        )

    def leads_nowhere(self, error: asyncssh.ChannelOpenError, onward: Settings) -> Exception:
        """Convert `error`, which this jump host reported because it cannot or may not connect to
        the next server `onward`, into a readable one."""
        place = replace(self.place, goal=self.place.goal or onward.server)
        if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            return problems.jump_forbids(place, onward.server)
        return problems.jump_cannot_reach(place, onward.server, error.reason)

    async def close(self) -> None:
        if self.connection:
            self.connection.close()
            try:
                await asyncio.wait_for(self.connection.wait_closed(), 2)
            except TimeoutError:
                self.connection.abort()
                await self.connection.wait_closed()
        await self._close_proxy()

    async def _close_proxy(self) -> None:
        if self._proxy:
            await self._proxy.close()
            self._proxy = None


async def connect_by_asyncssh(
    address: str, asker: Asker, config: Path | None = None, known_hosts: Path | None = None
) -> "AsyncSSHConnection":
    """Connect by AsyncSSH over all jump hosts of an address. `asker` puts questions to the person,
    `config` replaces the SSH configuration, `known_hosts` is used if that names no such file.
    Raises LaunchError."""
    way = await _way(parse_address(address), config, known_hosts)
    goal = way[-1].server
    hops: list[Hop] = []
    try:
        for settings in way:
            before = hops[-1] if hops else None
            via = before.place.server if before else ""
            place = Place(settings.server, via, "" if settings is way[-1] else goal)
            hop = Hop(settings, place, asker)
            await hop.open(before)
            hops.append(hop)
    except BaseException:
        await _close(hops)
        raise
    return AsyncSSHConnection(hops)


async def _way(
    address: Address, config: Path | None, known_hosts: Path | None, beyond: tuple[str, ...] = ()
) -> list[Settings]:
    """Settings of all servers of the route, the target last. In `ProxyJump a,b` only `a` may use a
    ProxyJump of its own, as in OpenSSH."""
    settings = await asyncio.to_thread(read_settings, address, config, known_hosts)
    if settings.server in beyond:
        raise problems.jump_loop(settings.server)
    way: list[Settings] = []
    for number, jump in enumerate(settings.jumps):
        hop = parse_address(jump.strip())
        if number == 0:
            way += await _way(hop, config, known_hosts, (*beyond, settings.server))
        else:
            way.append(await asyncio.to_thread(read_settings, hop, config, known_hosts))
    return [*way, settings]


async def _close(hops: list[Hop]) -> None:
    for hop in reversed(hops):
        await hop.close()


class AsyncSSHConnection(Connection):
    def __init__(self, hops: list[Hop]) -> None:
        self._hops = hops
        last = hops[-1]
        assert last.connection is not None
        assert last.client is not None
        self._connection = last.connection
        self._lost = last.client.lost
        self._closing = False
        self.server = last.place.server

    async def run(
        self,
        command: str,
        input: bytes | AsyncIterable[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
    ) -> Done:
        fed = input is not None
        process = await self._process(by_sh(command, announce=True), fed)
        stderr = bytearray()
        stdin = process.stdin if fed else None
        try:
            out, err = await run_with_input(
                stdin, process.stdout, process.stderr, input, on_stdout, stderr.extend
            )
            await process.wait_closed()
        except BaseException as error:
            if self._lost.done() and isinstance(error, asyncssh.Error | ConnectionError):
                raise problems.lost(self.server, self._why()) from error
            await asyncio.shield(self._end(process, stderr))
            raise
        finally:
            process.close()
        return Done(self._code(process), out, PROCESS.sub(b"", err, count=1))

    async def _end(self, process: asyncssh.SSHClientProcess[bytes], stderr: bytearray) -> None:
        """End a command that is no longer wanted."""
        if self._lost.done() or process.exit_status is not None:
            return
        with contextlib.suppress(asyncssh.Error, OSError, LaunchError, TimeoutError):
            number = await number_of(process.stderr, stderr)
            if number is not None:
                async with asyncio.timeout(ENDING_S):
                    killing = await self._process(by_sh(end_group(number)), False)
                    await killing.wait_closed()

    async def _process(self, line: str, fed: bool) -> asyncssh.SSHClientProcess[bytes]:
        if self._lost.done():
            raise problems.lost(self.server, self._why())
        try:
            return await self._connection.create_process(
                line, stdin=asyncssh.PIPE if fed else asyncssh.DEVNULL, encoding=None
            )
        except asyncssh.ChannelOpenError as error:
            if self._lost.done():
                raise problems.lost(self.server, self._why()) from error
            raise problems.no_session(self.server, error.reason) from error
        except (asyncssh.DisconnectError, OSError) as error:
            raise problems.lost(self.server, str(error)) from error

    def _code(self, process: asyncssh.SSHClientProcess[bytes]) -> int:
        if process.exit_signal:
            name = f"SIG{process.exit_signal[0]}"
            return 128 + getattr(signal.Signals, name, signal.SIGKILL)
        if process.exit_status is None:
            raise problems.lost(self.server, self._why() or "it ended in the middle of a command")
        return process.exit_status

    async def forward(self, port: int, socket: Path) -> None:
        prepare_socket(socket)
        await self._try_forwarding(port)
        await self._connection.forward_local_path_to_port(str(socket), "127.0.0.1", port)
        socket.chmod(0o600)

    async def _try_forwarding(self, port: int) -> None:
        """Check that forwarding is allowed; the port need not have a listener yet."""
        try:
            _, writer = await self._connection.open_connection("127.0.0.1", port)
        except asyncssh.ChannelOpenError as error:
            if self._lost.done():
                raise problems.lost(self.server, self._why()) from error
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise problems.forwarding_forbidden(self.server, port) from error
        except (asyncssh.DisconnectError, OSError) as error:
            raise problems.lost(self.server, str(error)) from error
        else:
            writer.close()
            await writer.wait_closed()

    async def wait_closed(self) -> Problem | None:
        await asyncio.shield(self._lost)
        return None if self._closing else problems.lost(self.server, self._why()).problem

    def _why(self) -> str:
        error = self._lost.result() if self._lost.done() else None
        return str(error) if error else "the server closed it"

    async def close(self) -> None:
        self._closing = True
        await _close(self._hops)
