"""SSH servers on localhost with fresh keys and real commands.

`FarSide` is AsyncSSH's server in a thread of its own; `sshd.py` has OpenSSH's. Both have a home,
an authorized user key, and lines for known_hosts.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from tests.support.loop_thread import InLoop

USER = "trainer"


@dataclass
class Keys:
    """Key files of a user, made by `ssh-keygen` once for all tests."""

    folder: Path

    def path(self, name: str, kind: str = "ssh-ed25519", passphrase: str | None = None) -> Path:
        file = self.folder / name
        if not file.exists():
            kind = kind.removeprefix("ssh-").partition("-sha2")[0]
            words = ["-t", kind, "-N", passphrase or "", "-a", "1", "-C", name, "-f", str(file)]
            subprocess.run(["ssh-keygen", "-q", *words], check=True, stdin=subprocess.DEVNULL)
        return file

    def public(self, name: str) -> str:
        return Path(f"{self.path(name)}.pub").read_text()


@dataclass
class Manners:
    """Behaviour of a server; a test changes it, `FarSide.reset` restores it."""

    keys: bool = True
    """Accept authorized keys."""
    password: str | None = None
    code: str | None = None
    """Ask for password and code interactively."""
    forwarding: bool = True
    tries: int | None = None
    """Maximum number of keys tried before the server disconnects."""
    expired: str = ""
    """Banner shown to every user before disconnecting."""


@dataclass
class FarSide:
    """SSH server.

    `sessions` counts commands, `logins` authenticated connections, `attempts` has every user name
    offered: empty if nobody tried to authenticate.
    """

    folder: Path
    keys: Keys
    host_keys: list[str] = field(default_factory=lambda: ["host"])
    """Names of `keys`; a certificate is stored next to its key."""
    manners: Manners = field(default_factory=Manners)
    port: int = 0
    sessions: int = 0
    logins: int = 0
    attempts: list[str] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    shell: tuple[str, ...] = ("/bin/sh", "-c")

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.authorized.write_text(self.keys.public("user"))
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.processes: set[asyncio.subprocess.Process] = set()
        self._loop: InLoop | None = None
        self._acceptor: asyncssh.SSHAcceptor | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def authorized(self) -> Path:
        return self.folder / "authorized_keys"

    @property
    def address(self) -> str:
        return f"{USER}@127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        """Name in known_hosts."""
        return f"[127.0.0.1]:{self.port}"

    def known(self, *names: str) -> str:
        """Return lines for known_hosts: the server's host keys, or those named."""
        shown = [self.keys.public(one).split() for one in names or self.host_keys]
        return "".join(f"{self.name} {kind} {data}\n" for kind, data, *_ in shown)

    def start(self) -> "FarSide":
        self._loop = InLoop("far side")
        self._loop.do(self._listen())
        return self

    def stop(self) -> None:
        assert self._loop
        self._loop.do(self._close())
        self._loop.end()
        self._loop = None

    def restart(self, *host_keys: str) -> None:
        """Restart on the same port, optionally with other host keys."""
        assert self._loop
        self._loop.do(self._close())
        self.host_keys = list(host_keys) or self.host_keys
        self._loop.do(self._listen())

    def drop(self) -> None:
        """Abort all connections."""
        assert self._loop
        self._loop.call(lambda: [one.abort() for one in list(self.connections)])

    def reset(self) -> None:
        """Restore the initial state for the next test; end running commands."""
        assert self._loop
        self.drop()
        self._loop.do(self._end_processes())
        self.manners = Manners()
        self.sessions = self.logins = 0
        self.attempts.clear()
        self.forwards.clear()
        self.authorized.write_text(self.keys.public("user"))
        if self.host_keys != ["host"]:
            self.restart("host")

    async def _listen(self) -> None:
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: _Server(self),
            server_host_keys=[str(self.keys.path(one)) for one in self.host_keys],
            gss_host=None,
            encoding=None,
            login_timeout=0,
        )
        self.port = self._acceptor.get_port()

    async def _close(self) -> None:
        assert self._acceptor
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for connection in list(self.connections):
            connection.abort()
        await self._end_processes()

    async def _end_processes(self) -> None:
        for process in list(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class _Server(asyncssh.SSHServer):
    def __init__(self, far: FarSide) -> None:
        self._far = far
        self._looked_at = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        self._far.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._far.connections.discard(self._conn)

    def begin_auth(self, username: str) -> bool:
        self._far.attempts.append(username)
        if self._far.manners.expired:
            self._conn.send_auth_banner(self._far.manners.expired)
            raise asyncssh.DisconnectError(2, "Access denied by PAM account configuration")
        authorized = asyncssh.read_authorized_keys(str(self._far.authorized))
        if self._far.manners.keys:
            self._conn.set_authorized_keys(authorized)
        return True

    def auth_completed(self) -> None:
        self._far.logins += 1

    def public_key_auth_supported(self) -> bool:
        return self._far.manners.keys

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Reject a key that is not authorized, and disconnect after too many."""
        self._looked_at += 1
        tries = self._far.manners.tries
        if tries is not None and self._looked_at >= tries:
            raise asyncssh.DisconnectError(2, "Too many authentication failures")
        return False

    def password_auth_supported(self) -> bool:
        return self._far.manners.password is not None and self._far.manners.code is None

    def validate_password(self, username: str, password: str) -> bool:
        return password == self._far.manners.password

    def kbdint_auth_supported(self) -> bool:
        return self._far.manners.code is not None

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        return "", "Two steps", "", [("Password: ", False), ("Verification code: ", True)]

    def validate_kbdint_response(self, username: str, responses: Any) -> bool:
        return list(responses) == [self._far.manners.password, self._far.manners.code]

    def connection_requested(self, dest_host: str, dest_port: int, *_: object) -> bool:
        if dest_host != "127.0.0.1" or not self._far.manners.forwarding:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed"
            )
        self._far.forwards.append(dest_port)
        return True

    def session_requested(self) -> "_Session":
        return _Session(self._far)


class _Session(asyncssh.SSHServerSession[bytes]):
    """Runs one command in a process group of its own, with pipes like those of sshd."""

    def __init__(self, far: FarSide) -> None:
        self._far = far
        self._command = ""
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return True

    def session_started(self) -> None:
        self._far.sessions += 1
        self._running = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes, datatype: object) -> None:
        self._input.put_nowait(data)

    def eof_received(self) -> bool:
        self._input.put_nowait(b"")
        return True

    def signal_received(self, name: str) -> None:
        self._kill(getattr(signal, f"SIG{name}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._input.put_nowait(b"")

    def _kill(self, number: int) -> None:
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _run(self) -> None:
        pipe = asyncio.subprocess.PIPE
        environment = {"HOME": str(self._far.home), "PATH": os.environ["PATH"], "USER": USER}
        process = self._process = await asyncio.create_subprocess_exec(
            *self._far.shell, self._command, stdin=pipe, stdout=pipe, stderr=pipe,
            cwd=self._far.home, env=environment, start_new_session=True,
        )  # fmt: skip
        self._far.processes.add(process)
        assert process.stdout
        assert process.stderr
        feeding = asyncio.create_task(self._feed(process))
        try:
            await asyncio.gather(
                self._pass(process.stdout, None),
                self._pass(process.stderr, asyncssh.EXTENDED_DATA_STDERR),
            )
            await process.wait()
        finally:
            feeding.cancel()
            self._far.processes.discard(process)
        if self._channel.is_closing():
            return
        code = process.returncode or 0
        if code < 0:
            self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            self._channel.exit(code)

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while data := await self._input.get():
                process.stdin.write(data)
                await process.stdin.drain()
        process.stdin.close()

    async def _pass(self, pipe: asyncio.StreamReader, kind: int | None) -> None:
        """Read to the end, even if the channel is closed."""
        while data := await pipe.read(1 << 15):
            if not self._channel.is_closing():
                self._channel.write(data, kind)
            await asyncio.sleep(0)


def run_agent(folder: Path, *keys: Path) -> "subprocess.Popen[bytes]":
    """Start a real ssh-agent on a socket in the folder with these keys."""
    socket = folder / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    while not socket.exists():
        assert process.poll() is None, "ssh-agent did not start"
    for key in keys:
        subprocess.run(
            ["ssh-add", "-q", str(key)],
            env={**os.environ, "SSH_AUTH_SOCK": str(socket)},
            check=True,
            stdin=subprocess.DEVNULL,
        )
    return process
