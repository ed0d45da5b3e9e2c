"""Remote server as seen by a new user: clean server, OpenSSH's sshd, and the command line."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.ssh_server import Keys
from tests.support.sshd import Sshd

ROOT = Path(__file__).parents[2]
NEEDS_S = 600


@pytest.fixture
def server(tmp_path: Path, ssh_keys: Keys) -> Iterator[Sshd]:
    folder = tmp_path / "server"
    folder.mkdir()
    sshd = Sshd(folder, ssh_keys).start()
    yield sshd
    sshd.stop()


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Folder for sockets, with a short path."""
    with tempfile.TemporaryDirectory(prefix="atl-") as folder:
        yield Path(folder)


@pytest.fixture
def user_environment(tmp_path: Path, server: Sshd, runtime: Path) -> dict[str, str]:
    """Environment variables of a user with a key for the server and without a known host.

    Uses the real cache.
    """
    home = tmp_path / "person"
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    config = home / ".ssh" / "config"
    config.write_text(
        f"Host gpu-box\n  HostName 127.0.0.1\n  Port {server.port}\n  User root\n"
        f"  IdentityFile {server.keys.path('user')}\n  IdentitiesOnly yes\n"
    )
    config.chmod(0o600)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    places = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "STATE", "CONFIG")}
    return {
        **os.environ,
        **places,
        "HOME": str(home),
        "XDG_CACHE_HOME": cache,
        "XDG_RUNTIME_DIR": str(runtime),
        "ATELIER_WORKSPACE": str(home / "Atelier"),
    }


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(NEEDS_S)
def test_hello_trains_on_a_clean_server(
    server: Sshd, user_environment: dict[str, str], tmp_path: Path
) -> None:
    """Add, check, install, train, fetch, export and remove; the server is left clean."""

    def engine(*words: str, typed: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "engine", *words],
            input=typed,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=user_environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "gpu-box" in engine("hosts", "known")
    engine("hosts", "add", "gpu-box", "--engine", "engine-cpu")
    report = engine("hosts", "check", "gpu-box", typed="yes\n")
    assert "SHA256:" in report
    assert "Would be installed" in report
    assert not list(server.home.iterdir())

    engine("hosts", "install", "gpu-box")
    project = str(tmp_path / "hello")
    engine("new", project, "--sample", "hello")
    lines = engine("train", project, "--host", "gpu-box", "--steps", "1", "--json").splitlines()
    kinds = [json.loads(line).get("kind") for line in lines]
    assert kinds[-1] == "run.finished"
    (run,) = [json.loads(line) for line in engine("runs", project, "--json").splitlines()]
    assert (run["host"], run["state"], run["step"]) == ("gpu-box", "finished", 1)

    fetched = engine("hosts", "fetch", "gpu-box", project, f"{run['name']}@1")
    assert "verified" in fetched
    out = tmp_path / "exported"
    engine("hosts", "bring-home", "gpu-box", project, run["name"])
    engine("export", f"{run['path']}@1", "--format", "adapter", "--out", str(out))
    assert (out / "adapter_model.safetensors").exists()

    engine("hosts", "remove", "gpu-box")
    assert not list(server.home.iterdir())
    assert not [one for one in psutil.process_iter() if str(server.home) in _command_line(one)]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
