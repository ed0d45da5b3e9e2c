"""Both transports, both servers, and a desk to connect from."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.remote.ssh.person import Desk
from tests.support.ssh_server import FarSide, Keys
from tests.support.sshd import Sshd


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For sockets, whose names must be short."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["asyncssh", "system"])
def transport(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def desk(tmp_path: Path, transport: Any) -> Desk:
    """Nothing is on record, and no key is named."""
    desk = Desk(tmp_path / "desk", transport)
    desk.folder.mkdir(mode=0o700)
    desk.configure("IdentityFile none")
    return desk


@pytest.fixture
def at_home(desk: Desk, far: FarSide, ssh_keys: Keys) -> Desk:
    """The key `user` is named, and the server's is on record."""
    desk.configure(f"IdentityFile {ssh_keys.path('user')}")
    desk.known_hosts.write_text(far.known())
    return desk


@pytest.fixture(scope="session")
def listeners() -> set[int]:
    """Processes that all tests share."""
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
    """Two implementations of the far side."""
    if request.param == "ours":
        return far
    found: Sshd = request.getfixturevalue("openssh_server")
    return found


@pytest.fixture
def connected_desk(desk: Desk, server: FarSide | Sshd, ssh_keys: Keys) -> Desk:
    """Ready for `server`."""
    desk.configure(f"IdentityFile {ssh_keys.path('user')}")
    desk.known_hosts.write_text(server.known())
    return desk
