"""Bad networks: every step has its bound, and silence is found out."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh.base import Connection
from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import Desk
from tests.support.fault_proxy import FaultProxy
from tests.support.ssh_server import FarSide, Keys


@pytest.fixture
def line(desk: Desk, far: FarSide, ssh_keys: Keys) -> Iterator[FaultProxy]:
    """The way to `far`; its key is on record under the proxy's port."""
    with FaultProxy(far.port) as proxy:
        desk.configure(f"IdentityFile {ssh_keys.path('user')}", f"HostKeyAlias far{far.port}")
        desk.known_hosts.write_text(f"far{far.port} {ssh_keys.public('host')}")
        yield proxy


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are the same ones, shorter."""
    monkeypatch.setattr("engine.remote.ssh.asyncssh.connection.REACH_S", 0.4)
    monkeypatch.setattr("engine.remote.ssh.asyncssh.client.GREET_S", 0.4)
    monkeypatch.setattr("engine.remote.ssh.asyncssh.connection.KEEPALIVE_S", 0.1)
    from engine.remote.ssh.openssh import command_line

    short = command_line.INSISTED.replace("Interval 5", "Interval 1").replace(
        "CountMax 3", "CountMax 1"
    )
    short = short.replace("ConnectTimeout 10", "ConnectTimeout 1")
    assert short != command_line.INSISTED
    monkeypatch.setattr(command_line, "INSISTED", short)


def address(port: int) -> str:
    return f"trainer@127.0.0.1:{port}"


def test_nothing_listens(desk: Desk) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        problem = desk.problem(address(free.getsockname()[1]))
    assert problem.code == "ssh.refused"
    assert may_pass(problem)


def test_a_name_that_nobody_knows(desk: Desk) -> None:
    problem = desk.problem("trainer@no-such-server.invalid")
    assert problem.code == "ssh.name_not_found"
    assert "no-such-server.invalid" in problem.message
    assert may_pass(problem)


@pytest.mark.usefixtures("hasty")
def test_a_server_that_does_not_answer(desk: Desk) -> None:
    """A queue of connections that is full takes no more: what a firewall that swallows does."""
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        second = socket.socket()
        second.setblocking(False)
        second.connect_ex(full.getsockname())
        began = time.monotonic()
        problem = desk.problem(address(full.getsockname()[1]))
        second.close()
    assert problem.code == "ssh.timed_out"
    assert may_pass(problem)
    assert time.monotonic() - began < 9


@pytest.mark.usefixtures("hasty")
def test_a_server_that_says_nothing(desk: Desk, line: FaultProxy) -> None:
    line.black_hole()
    problem = desk.problem(address(line.port))
    assert problem.code == "ssh.silent"
    assert may_pass(problem)


def test_a_server_of_another_kind(desk: Desk) -> None:
    async def work() -> None:
        async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"<html>\n" * 2000)
            writer.close()

        server = await asyncio.start_server(web, "127.0.0.1", 0)
        with pytest.raises(LaunchError) as raised:
            await desk.connect(address(server.sockets[0].getsockname()[1]))
        assert raised.value.problem.code in ("ssh.silent", "ssh.closed")
        server.close()

    asyncio.run(work())


@pytest.mark.usefixtures("hasty")
def test_silence_is_found_out(desk: Desk, line: FaultProxy) -> None:
    async def work(connection: Connection) -> None:
        running = asyncio.create_task(connection.run("sleep 60"))
        await connection.run("true")
        began = time.monotonic()
        await asyncio.to_thread(line.black_hole)
        problem = await connection.wait_closed()
        assert problem
        assert problem.code == "ssh.lost"
        assert time.monotonic() - began < 15
        with pytest.raises(LaunchError, match="was lost"):
            await running

    desk.with_connection(address(line.port), work)


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_a_short_silence_is_endured(
    desk: Desk, line: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.remote.ssh.asyncssh.connection.KEEPALIVE_S", 0.3)

    async def work(connection: Connection) -> None:
        await asyncio.to_thread(line.black_hole)
        running = asyncio.create_task(connection.run("cat", b"still there"))
        await asyncio.sleep(0.7)
        await asyncio.to_thread(line.black_hole, False)
        assert (await running).out == b"still there"

    desk.with_connection(address(line.port), work)


@pytest.mark.parametrize("fault", ["reset", "drop", "half_close"])
def test_an_end_is_noticed_at_once(desk: Desk, line: FaultProxy, fault: str) -> None:
    async def work(connection: Connection) -> None:
        began = time.monotonic()
        await asyncio.to_thread(getattr(line, fault))
        problem = await connection.wait_closed()
        assert problem
        assert may_pass(problem)
        assert time.monotonic() - began < 10

    desk.with_connection(address(line.port), work)


def test_bytes_may_come_one_by_one_and_late(desk: Desk, line: FaultProxy) -> None:
    line.delay_s = 0.002
    line.one_byte = True
    assert desk.say(address(line.port)) == "hello\n"


def test_after_a_cut_the_next_connection_stands(desk: Desk, line: FaultProxy) -> None:
    async def work(connection: Connection) -> None:
        await asyncio.to_thread(line.cut, 0.3)
        assert await connection.wait_closed()
        with pytest.raises(LaunchError) as raised:
            await desk.connect(address(line.port))
        assert raised.value.problem.code == "ssh.refused"
        await asyncio.sleep(0.4)
        again = await desk.connect(address(line.port))
        assert (await again.run("echo back")).out == b"back\n"
        await again.close()

    desk.with_connection(address(line.port), work)
