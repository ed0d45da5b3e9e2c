"""Bad networks: every step has a timeout, and silence is detected."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh.base import Connection
from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import SshClient
from tests.support.fault_proxy import FaultProxy
from tests.support.ssh_server import FarSide, Keys


@pytest.fixture
def proxy(client: SshClient, far: FarSide, ssh_keys: Keys) -> Iterator[FaultProxy]:
    """Proxy in front of `far`, with its key in known_hosts under an alias."""
    with FaultProxy(far.port) as proxy:
        client.configure(f"IdentityFile {ssh_keys.path('user')}", f"HostKeyAlias far{far.port}")
        client.known_hosts.write_text(f"far{far.port} {ssh_keys.public('host')}")
        yield proxy


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts."""
    monkeypatch.setattr("engine.remote.ssh.asyncssh.connection.REACH_S", 0.4)
    monkeypatch.setattr("engine.remote.ssh.asyncssh.client.GREET_S", 0.4)
    monkeypatch.setattr("engine.remote.ssh.asyncssh.connection.KEEPALIVE_S", 0.1)
    from engine.remote.ssh.openssh import command_line

    shortened = command_line.INSISTED.replace("Interval 5", "Interval 1").replace(
        "CountMax 3", "CountMax 1"
    )
    shortened = shortened.replace("ConnectTimeout 10", "ConnectTimeout 1")
    assert shortened != command_line.INSISTED
    monkeypatch.setattr(command_line, "INSISTED", shortened)


def address(port: int) -> str:
    return f"trainer@127.0.0.1:{port}"


def test_closed_port_is_reported_as_refused(client: SshClient) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        problem = client.problem(address(free.getsockname()[1]))
    assert problem.code == "ssh.refused"
    assert may_pass(problem)


def test_unknown_host_name_is_reported(client: SshClient) -> None:
    problem = client.problem("trainer@no-such-server.invalid")
    assert problem.code == "ssh.name_not_found"
    assert "no-such-server.invalid" in problem.message
    assert may_pass(problem)


@pytest.mark.usefixtures("short_timeouts")
def test_unanswered_connection_times_out(client: SshClient) -> None:
    """A full backlog accepts no connection, like a firewall that drops packets."""
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        second = socket.socket()
        second.setblocking(False)
        second.connect_ex(full.getsockname())
        start = time.monotonic()
        problem = client.problem(address(full.getsockname()[1]))
        second.close()
    assert problem.code == "ssh.timed_out"
    assert may_pass(problem)
    assert time.monotonic() - start < 9


@pytest.mark.usefixtures("short_timeouts")
def test_silent_server_times_out(client: SshClient, proxy: FaultProxy) -> None:
    proxy.black_hole()
    problem = client.problem(address(proxy.port))
    assert problem.code == "ssh.silent"
    assert may_pass(problem)


def test_server_of_another_protocol_is_reported(client: SshClient) -> None:
    async def work() -> None:
        async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"<html>\n" * 2000)
            writer.close()

        server = await asyncio.start_server(web, "127.0.0.1", 0)
        with pytest.raises(LaunchError) as raised:
            await client.connect(address(server.sockets[0].getsockname()[1]))
        assert raised.value.problem.code in ("ssh.silent", "ssh.closed")
        server.close()

    asyncio.run(work())


@pytest.mark.usefixtures("short_timeouts")
def test_silence_ends_the_connection(client: SshClient, proxy: FaultProxy) -> None:
    async def work(connection: Connection) -> None:
        running = asyncio.create_task(connection.run("sleep 60"))
        await connection.run("true")
        start = time.monotonic()
        await asyncio.to_thread(proxy.black_hole)
        problem = await connection.wait_closed()
        assert problem
        assert problem.code == "ssh.lost"
        assert time.monotonic() - start < 15
        with pytest.raises(LaunchError, match="was lost"):
            await running

    client.with_connection(address(proxy.port), work)


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_short_silence_is_tolerated(
    client: SshClient, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.remote.ssh.asyncssh.connection.KEEPALIVE_S", 0.3)

    async def work(connection: Connection) -> None:
        await asyncio.to_thread(proxy.black_hole)
        running = asyncio.create_task(connection.run("cat", b"still there"))
        await asyncio.sleep(0.7)
        await asyncio.to_thread(proxy.black_hole, False)
        assert (await running).out == b"still there"

    client.with_connection(address(proxy.port), work)


@pytest.mark.parametrize("fault", ["reset", "drop", "half_close"])
def test_connection_end_is_detected_at_once(
    client: SshClient, proxy: FaultProxy, fault: str
) -> None:
    async def work(connection: Connection) -> None:
        start = time.monotonic()
        await asyncio.to_thread(getattr(proxy, fault))
        problem = await connection.wait_closed()
        assert problem
        assert may_pass(problem)
        assert time.monotonic() - start < 10

    client.with_connection(address(proxy.port), work)


def test_single_delayed_bytes_are_tolerated(client: SshClient, proxy: FaultProxy) -> None:
    proxy.delay_s = 0.002
    proxy.one_byte = True
    assert client.run_command(address(proxy.port)) == "hello\n"


def test_new_connection_succeeds_after_a_cut(client: SshClient, proxy: FaultProxy) -> None:
    async def work(connection: Connection) -> None:
        await asyncio.to_thread(proxy.cut, 0.3)
        assert await connection.wait_closed()
        with pytest.raises(LaunchError) as raised:
            await client.connect(address(proxy.port))
        assert raised.value.problem.code == "ssh.refused"
        await asyncio.sleep(0.4)
        reconnected = await client.connect(address(proxy.port))
        assert (await reconnected.run("echo back")).out == b"back\n"
        await reconnected.close()

    client.with_connection(address(proxy.port), work)
