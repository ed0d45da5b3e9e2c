"""What only OpenSSH shows: how its server forbids things, and that our `ssh` dies with us."""

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
from tests.engine.remote.ssh.person import Desk
from tests.support.ssh_server import FarSide, Keys
from tests.support.sshd import Sshd
from tests.support.tiny_environments import until


@pytest.fixture(scope="module")
def narrow(
    tmp_path_factory: pytest.TempPathFactory, ssh_keys: Keys, listeners: set[int]
) -> Iterator[Sshd]:
    """A server that forbids what it can."""
    settings = {"AllowTcpForwarding": "no", "MaxAuthTries": "2", "MaxSessions": "1"}
    sshd = Sshd(tmp_path_factory.mktemp("narrow"), ssh_keys, settings).start()
    listeners.add(sshd.pid)
    yield sshd
    sshd.stop()


@pytest.fixture
def narrow_desk(desk: Desk, narrow: Sshd, ssh_keys: Keys) -> Desk:
    desk.known_hosts.write_text(narrow.known())
    desk.configure(f"IdentityFile {ssh_keys.path('user')}")
    return desk


def code_of(error: pytest.ExceptionInfo[LaunchError]) -> str:
    return error.value.problem.code


def test_forwarding_and_sessions_that_it_forbids(narrow_desk: Desk, narrow: Sshd) -> None:
    async def work(connection: Connection) -> None:
        with pytest.raises(LaunchError) as raised:
            await connection.forward(80, narrow_desk.folder / "line")
        assert code_of(raised) == "ssh.forwarding_forbidden"
        first = asyncio.create_task(connection.run("read line; echo $line", _after(1)))
        await asyncio.sleep(0.3)
        with pytest.raises(LaunchError) as raised:
            await connection.run("true")
        assert code_of(raised) == "ssh.no_session"
        assert (await first).out == b"go\n"
        await asyncio.sleep(0.3)  # it counts sessions down when it comes to it
        assert (await connection.run("true")).code == 0

    narrow_desk.with_connection(narrow.address, work)


async def _after(seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield b"go\n"


def test_too_many_keys_for_it(narrow_desk: Desk, narrow: Sshd, ssh_keys: Keys) -> None:
    names = ["other", "one", "two", "user"]
    narrow_desk.configure(*(f"IdentityFile {ssh_keys.path(name)}" for name in names))
    assert narrow_desk.problem(narrow.address).code == "ssh.too_many_failures"


ROOT = Path(__file__).parents[5]
HOLD = """
import asyncio, sys
from pathlib import Path
from engine.remote.ssh.base import connect
from engine.protocol.requests.remote import HostSpec

async def work():
    spec = HostSpec(name="far", address=sys.argv[1], transport="system")
    connection = await connect(spec, None, config=Path(sys.argv[2]))
    print("here", flush=True)
    await connection.run("sleep 60")

asyncio.run(work())
"""


@pytest.mark.parametrize("transport", ["system"], indirect=True)
def test_our_ssh_goes_when_we_are_gone(at_home: Desk, far: FarSide, short_folder: Path) -> None:
    """Killed, without a chance to close anything."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, far.address, str(at_home.config)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(short_folder), "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    assert process.stdout.readline() == b"here\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("ssh" in child.name() for child in children)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    until(lambda: list(short_folder.iterdir()) == [], 5)
