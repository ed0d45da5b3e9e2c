"""Fixtures: both transports, both servers, and an SSH client with its own configuration."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.remote.ssh.person import SshClient
from tests.support.ssh_server import FarSide, Keys
from tests.support.sshd import Sshd


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Folder with a short path, for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["asyncssh", "system"])
def transport(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def client(tmp_path: Path, transport: Any) -> SshClient:
    """Client with empty known_hosts and no key."""
    client = SshClient(tmp_path / "desk", transport)
    client.folder.mkdir(mode=0o700)
    client.configure("IdentityFile none")
    return client


@pytest.fixture
def trusted_client(client: SshClient, far: FarSide, ssh_keys: Keys) -> SshClient:
    """Client with the key `user` and the server's key in known_hosts."""
    client.configure(f"IdentityFile {ssh_keys.path('user')}")
    client.known_hosts.write_text(far.known())
    return client


@pytest.fixture(scope="session")
def listeners() -> set[int]:
    """PIDs of server processes that all tests share."""
    return set()


@pytest.fixture
def may_stay(listeners: set[int]) -> Callable[[psutil.Process], bool]:
    return lambda process: process.pid in listeners


@pytest.fixture(scope="session")
def openssh_server(
    tmp_path_factory: pytest.TempPathFactory, ssh_keys: Keys, listeners: set[int]
) -> Iterator[Sshd]:
    sshd = Sshd(tmp_path_factory.mktemp("sshd"), ssh_keys).start()
    listeners.add(sshd.pid)
    yield sshd
    sshd.stop()


@pytest.fixture(params=["ours", "openssh"])
def server(request: pytest.FixtureRequest, far: FarSide) -> FarSide | Sshd:
    """The server: our implementation or OpenSSH's."""
    if request.param == "ours":
        return far
    sshd_: Sshd = request.getfixturevalue("openssh_server")
    return sshd_


@pytest.fixture
def ready_client(client: SshClient, server: FarSide | Sshd, ssh_keys: Keys) -> SshClient:
    """Client with key and known_hosts for `server`."""
    client.configure(f"IdentityFile {ssh_keys.path('user')}")
    client.known_hosts.write_text(server.known())
    return client
