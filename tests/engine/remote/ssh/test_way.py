"""Jump hosts and ProxyCommands, each with its own checks and prompts."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.remote.ssh.base import Connection
from engine.remote.ssh.problems import may_pass
from tests.engine.remote.ssh.person import ScriptedPrompter, SshClient
from tests.support.ssh_server import FarSide, Keys


@pytest.fixture(scope="module")
def second_server(tmp_path_factory: pytest.TempPathFactory, ssh_keys: Keys) -> Iterator[FarSide]:
    """Second server, shared by the module."""
    server = FarSide(tmp_path_factory.mktemp("bastion"), ssh_keys, ["bastion host"]).start()
    yield server
    server.stop()


@pytest.fixture
def bastion(second_server: FarSide) -> Iterator[FarSide]:
    yield second_server
    second_server.reset()


@pytest.fixture
def client(client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys) -> SshClient:
    """Client that reaches `goal` through `bastion`, with all keys in known_hosts."""
    client.known_hosts.write_text(far.known() + bastion.known())
    client.configure(*config_lines(far, bastion, ssh_keys))
    return client


def config_lines(far: FarSide, bastion: FarSide, keys: Keys, *more: str) -> list[str]:
    return [
        *more,
        f"Host goal\n HostName 127.0.0.1\n Port {far.port}\n User trainer\n ProxyJump bastion",
        f"Host bastion\n HostName 127.0.0.1\n Port {bastion.port}\n User guest",
        f"Match all\n IdentityFile {keys.path('user')}",
    ]


def test_connection_through_a_jump_host(
    client: SshClient, far: FarSide, bastion: FarSide, tmp_path: Path
) -> None:
    async def work(connection: Connection) -> None:
        assert connection.server == far.address
        assert (await connection.run("cat", b"there and back")).out == b"there and back"
        await connection.forward(far.port, tmp_path / "line" / "socket")
        reader, writer = await asyncio.open_unix_connection(tmp_path / "line" / "socket")
        assert (await reader.readline()).startswith(b"SSH-2.0")
        writer.close()

    client.with_connection("goal", work)
    assert bastion.forwards == [far.port]
    assert (bastion.sessions, far.logins, bastion.logins) == (0, 1, 1)


def test_each_server_asks_in_its_own_name(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    client.known_hosts.write_text("")
    for server, password in ((bastion, "first"), (far, "second")):
        server.manners.keys, server.manners.password = False, password
    prompter = ScriptedPrompter({"host_key": ["yes", "yes"], "password": ["first", "second"]})
    assert client.run_command("goal", prompter=prompter) == "hello\n"
    jump = f"guest@127.0.0.1:{bastion.port}"
    questions = [(question.kind, question.host, question.via) for question in prompter.questions]
    assert questions == [
        ("host_key", jump, ""),
        ("password", jump, ""),
        ("host_key", far.address, jump),
        ("password", far.address, jump),
    ]


def test_changed_jump_host_key_stops_before_authentication(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    client.known_hosts.write_text(far.known() + bastion.known("other"))
    problem = client.problem("goal")
    assert problem.code == "ssh.host_key_changed"
    assert f"The jump host guest@127.0.0.1:{bastion.port}" in problem.message
    assert far.address in problem.message
    assert bastion.attempts == far.attempts == []


def test_changed_target_key_behind_a_jump_host_is_rejected(
    client: SshClient, far: FarSide, bastion: FarSide
) -> None:
    client.known_hosts.write_text(far.known("other") + bastion.known())
    problem = client.problem("goal")
    assert problem.code == "ssh.host_key_changed"
    assert problem.where == f"{client.known_hosts}:1"
    assert far.attempts == []


def test_failing_jump_host_is_named(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    bastion.manners.forwarding = False
    problem = client.problem("goal")
    assert problem.code == "ssh.jump_forbids"
    assert str(bastion.port) in problem.message
    assert not may_pass(problem)
    bastion.manners.keys = False
    bastion.manners.password = "x"
    problem = client.problem("goal", ScriptedPrompter({"password": ["a", "b", "c"]}))
    assert problem.code == "ssh.password_wrong"
    assert problem.message.startswith("The jump host guest@")
    bastion.reset()
    client.configure("Host bastion\n Port 1", *config_lines(far, bastion, ssh_keys))
    problem = client.problem("goal")
    assert problem.code == "ssh.refused"
    assert problem.message.startswith("The jump host guest@127.0.0.1:1 ")
    assert may_pass(problem)


def test_unreachable_target_behind_a_jump_host_is_reported(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    client.configure("Host goal\n Port 1", *config_lines(far, bastion, ssh_keys))
    problem = client.problem("goal")
    assert problem.code == "ssh.jump_cannot_reach"
    assert "trainer@127.0.0.1:1" in problem.message
    assert str(bastion.port) in problem.message
    assert may_pass(problem)


def test_connection_over_two_jump_hosts(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    jumps = f"bastion,guest@127.0.0.1:{far.port}"
    client.configure(f"Host goal\n ProxyJump {jumps}", *config_lines(far, bastion, ssh_keys))
    assert client.run_command("goal") == "hello\n"
    assert (bastion.logins, far.logins) == (1, 2)
    assert far.attempts[0] == "guest"


def test_lost_jump_host_is_a_lost_connection(
    client: SshClient, far: FarSide, bastion: FarSide
) -> None:
    async def work(connection: Connection) -> None:
        await asyncio.to_thread(bastion.drop)
        problem = await connection.wait_closed()
        assert problem
        assert problem.code == "ssh.lost"

    client.with_connection("goal", work)


@pytest.mark.parametrize("transport", ["asyncssh"], indirect=True)
def test_jump_loop_is_rejected(client: SshClient) -> None:
    client.configure("Host *\n ProxyJump bastion")
    problem = client.problem("goal")
    assert problem.code == "ssh.jump_loop"
    assert "ProxyJump" in problem.hint


PIPE = """
import os, socket, sys, threading
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sys.stderr.write("connected | it seems\\n"); sys.stderr.flush()
def there():
    while data := os.read(0, 65536): line.sendall(data)
threading.Thread(target=there, daemon=True).start()
while data := line.recv(65536): sys.stdout.buffer.write(data); sys.stdout.flush()
"""


def test_proxy_command_is_run_by_the_shell(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    script = client.folder / "pipe.py"
    script.write_text(PIPE)
    command = f"{sys.executable} {script} $(echo %p) 2>&2"
    client.configure(f"Host goal\n ProxyCommand {command}", *config_lines(far, bastion, ssh_keys))
    assert client.run_command("goal", "head -c 300000 /dev/zero | wc -c").strip() == "300000"
    assert bastion.attempts == []


def test_failing_proxy_command_is_reported_with_its_message(
    client: SshClient, far: FarSide, bastion: FarSide, ssh_keys: Keys
) -> None:
    client.configure(
        "Host goal\n ProxyCommand sh -c 'echo the ticket has run out >&2; exit 7'",
        *config_lines(far, bastion, ssh_keys),
    )
    problem = client.problem("goal")
    assert may_pass(problem)
    assert "the ticket has run out" in problem.message
