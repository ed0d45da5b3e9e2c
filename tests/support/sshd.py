"""OpenSSH's server on localhost, from the machine or from its package, without installation.

As root it needs a user for privilege separation, a folder in /run and, for a home of its own,
another line in /etc/passwd: all three in a private mount namespace.
"""

import contextlib
import ctypes.util
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs
import psutil
import pytest

from tests.support.ssh_server import Keys

PACKAGES = ("openssh-server", "libwrap0")
SEPARATED = "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin"


def find_sshd() -> tuple[str, Path | None]:
    """Return the program and the folder of its libraries; skip the test if there is none."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a server with a home of its own takes root and unshare")
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if program:
        return program, None
    cache = Path(platformdirs.user_cache_dir("atelier")) / "tests" / "sshd"
    if not (cache / "usr/sbin/sshd").exists():
        _unpack(cache)
    libraries = next(cache.glob("usr/lib/*/libwrap.so.0"), None)
    return str(cache / "usr/sbin/sshd"), libraries.parent if libraries else None


def _unpack(cache: Path) -> None:
    scratch = cache.with_name(f"sshd.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    packages = [
        name for name in PACKAGES if name != "libwrap0" or not ctypes.util.find_library("wrap")
    ]
    try:
        for name in packages:
            _call(["apt-get", "download", name], scratch)
        for package in scratch.glob("*.deb"):
            _call(["dpkg-deb", "-x", package.name, "."], scratch)
            package.unlink()
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        pytest.skip(f"no sshd here, and its package cannot be had ({error})")
    try:
        scratch.rename(cache)
    except OSError:  # another worker was faster
        shutil.rmtree(scratch, ignore_errors=True)


def _call(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


@dataclass
class Sshd:
    """OpenSSH server, reached as root with the key `user`; its home is a folder of the test."""

    folder: Path
    keys: Keys
    settings: dict[str, str] = field(default_factory=dict)
    """Lines of sshd_config that replace the defaults."""
    port: int = 0

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.authorized.write_text(self.keys.public("user"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """PID of the listening process."""
        return self._process.pid if self._process else 0

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def authorized(self) -> Path:
        return self.folder / "authorized_keys"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def address(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.port}"

    def known(self) -> str:
        kind, data, *_ = self.keys.public("host").split()
        return f"{self.name} {kind} {data}\n"

    def start(self) -> "Sshd":
        program, libraries = find_sshd()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._write()
        script = (
            f"mount --bind {self.folder}/passwd /etc/passwd && mount -t tmpfs none /run && "
            f"mkdir -m 755 /run/sshd && exec {program} -D -e -f {self.folder}/sshd_config"
        )
        environment = {**os.environ, **({"LD_LIBRARY_PATH": str(libraries)} if libraries else {})}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script], env=environment, stderr=log, stdout=log
            )
        end = time.monotonic() + 10
        while b"Server listening" not in self.log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                pytest.skip(f"sshd does not run here: {self.log.read_text()[-500:]}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """End the server, its connections, and their commands."""
        if self._process is None:
            return
        self.drop()
        self._process.terminate()
        self._process.wait()

    def drop(self) -> None:
        """Kill all connections and their commands.

        They are stopped first: a connection that is killed while it starts a command would leave
        it running.
        """
        assert self._process
        listener = psutil.Process(self._process.pid)
        stopped: set[psutil.Process] = set()
        while new := set(listener.children(recursive=True)) - stopped:
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            stopped |= new
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(stopped, timeout=5)

    def _write(self) -> None:
        lines = Path("/etc/passwd").read_text().splitlines()
        other_users = [line for line in lines if not line.startswith(("root:", "sshd:"))]
        own = f"root:x:0:0:root:{self.home}:/bin/sh"
        (self.folder / "passwd").write_text("\n".join([own, *other_users, SEPARATED]) + "\n")
        settings = {
            "Port": str(self.port), "ListenAddress": "127.0.0.1", "PidFile": "none",
            "HostKey": str(self.keys.path("host")), "AuthorizedKeysFile": str(self.authorized),
            "StrictModes": "no", "UsePAM": "no", "PermitRootLogin": "yes",
            "PasswordAuthentication": "no", "LogLevel": "VERBOSE", **self.settings,
        }  # fmt: skip
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (self.folder / "sshd_config").write_text(text)
