"""OpenSSH only: restrictions of its server, and the end of our `ssh` process."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from engine.protocol.problems import LaunchError
from engine.remote.ssh.base import Connection
from tests.engine.remote.ssh.person import SshClient
from tests.support.ssh_server import FarSide, Keys
from tests.support.sshd import Sshd
from tests.support.tiny_environments import until


@pytest.fixture(scope="module")
def restricted_server(
    tmp_path_factory: pytest.TempPathFactory, ssh_keys: Keys, listeners: set[int]
) -> Iterator[Sshd]:
    """OpenSSH server with forwarding, sessions and authentication attempts restricted."""
    settings = {"AllowTcpForwarding": "no", "MaxAuthTries": "2", "MaxSessions": "1"}
    sshd = Sshd(tmp_path_factory.mktemp("narrow"), ssh_keys, settings).start()
    listeners.add(sshd.pid)
    yield sshd
    sshd.stop()


@pytest.fixture
def restricted_client(client: SshClient, restricted_server: Sshd, ssh_keys: Keys) -> SshClient:
    client.known_hosts.write_text(restricted_server.known())
    client.configure(f"IdentityFile {ssh_keys.path('user')}")
    return client


def code_of(error: pytest.ExceptionInfo[LaunchError]) -> str:
    return error.value.problem.code


def test_forbidden_forwarding_and_sessions_are_reported(
    restricted_client: SshClient, restricted_server: Sshd
) -> None:
    async def work(connection: Connection) -> None:
        with pytest.raises(LaunchError) as raised:
            await connection.forward(80, restricted_client.folder / "line")
        assert code_of(raised) == "ssh.forwarding_forbidden"
        first = asyncio.create_task(connection.run("read line; echo $line", _send_after(1)))
        await asyncio.sleep(0.3)
        with pytest.raises(LaunchError) as raised:
            await connection.run("true")
        assert code_of(raised) == "ssh.no_session"
        assert (await first).out == b"go\n"
        await asyncio.sleep(0.3)  # sshd decrements its session count with a delay
        assert (await connection.run("true")).code == 0

    restricted_client.with_connection(restricted_server.address, work)


async def _send_after(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b"go\n"


def test_too_many_authentication_failures_are_reported(
    restricted_client: SshClient, restricted_server: Sshd, ssh_keys: Keys
) -> None:
    names = ["other", "one", "two", "user"]
    restricted_client.configure(*(f"IdentityFile {ssh_keys.path(name)}" for name in names))
    assert restricted_client.problem(restricted_server.address).code == "ssh.too_many_failures"


ROOT = Path(__file__).parents[5]
HOLD = """
import asyncio, sys
from pathlib import Path
from engine.remote.ssh.connect import connect
from engine.protocol.requests.remote import HostSpec

async def work():
    spec = HostSpec(name="far", address=sys.argv[1], transport="system")
    connection = await connect(spec, None, config=Path(sys.argv[2]))
    print("connected", flush=True)
    await connection.run("sleep 60")

asyncio.run(work())
"""


@pytest.mark.parametrize("transport", ["system"], indirect=True)
def test_ssh_process_exits_when_the_engine_is_killed(
    trusted_client: SshClient, far: FarSide, short_folder: Path
) -> None:
    """The process is killed and cannot close anything."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, far.address, str(trusted_client.config)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(short_folder), "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    assert process.stdout.readline() == b"connected\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("ssh" in child.name() for child in children)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    until(lambda: list(short_folder.iterdir()) == [], 5)
