"""Command lines of the installed `ssh` with mandatory options that no user configuration overrides.

Mandatory options stand in a configuration file of Atelier that includes the person's: `ssh` uses
the first value of an option, and passes the file on to the `ssh` that it starts for a jump host.
"""

import asyncio
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from engine.remote.ssh.address import Address, server_name
from engine.remote.ssh.base import KEEPALIVE_S, REACH_S, TRIES, UNANSWERED
from engine.remote.ssh.openssh.stderr import config_problem
from engine.remote.ssh.problems import ssh_missing

INSISTED = f"""\
BatchMode no
ClearAllForwardings yes
ConnectTimeout {REACH_S:.0f}
ControlMaster no
ControlPath none
ControlPersist no
EscapeChar none
ExitOnForwardFailure yes
ForwardAgent no
ForwardX11 no
GatewayPorts no
NumberOfPasswordPrompts {TRIES}
PermitLocalCommand no
RemoteCommand none
RequestTTY no
ServerAliveCountMax {UNANSWERED}
ServerAliveInterval {KEEPALIVE_S}
StreamLocalBindMask 0177
StreamLocalBindUnlink yes
Tunnel no
UpdateHostKeys no
"""
ASK_KEYS = "StrictHostKeyChecking ask\n"
"""StrictHostKeyChecking unless the configuration says `yes`: an unknown host key is never accepted
silently."""


@dataclass(frozen=True)
class Resolved:
    """Settings of a server as `ssh -G` prints them."""

    user: str
    host: str
    port: int
    jumps: tuple[str, ...]
    keys: tuple[str, ...]
    certificates: tuple[str, ...]
    strict: bool
    """StrictHostKeyChecking is `yes`: an unknown host key is refused without a question."""
    known_as: str
    """Name of the host in known_hosts."""
    known_hosts: tuple[Path, ...]

    @property
    def server(self) -> str:
        return server_name(self.user, self.host, self.port)


class OpenSSH:
    """Command lines of `ssh`, with a private folder for one connection."""

    def __init__(self, folder: Path, config: Path | None, known_hosts: Path | None) -> None:
        self.folder = folder
        self._config = config
        self._known_hosts = known_hosts

    @property
    def program(self) -> str:
        """Path of the `ssh` program. Raises LaunchError `ssh.ssh_missing`."""
        found = shutil.which("ssh")
        if not found:
            raise ssh_missing()
        return found

    @property
    def control(self) -> Path:
        return self.folder / "c"

    @property
    def _file(self) -> Path:
        return self.folder / "config"

    def write_config(self, ask: bool) -> None:
        """Write the private configuration file for `ssh`. With `ask`, the person is asked about
        unknown host keys even if their own configuration (StrictHostKeyChecking) would refuse
        them."""
        given = [self._config] if self._config else [_own("config"), Path("/etc/ssh/ssh_config")]
        lines = [f"Include {_quoted(one)}\n" for one in given if one and one.exists()]
        if self._known_hosts:
            lines.append(f"Match all\nUserKnownHostsFile {_quoted(self._known_hosts)}\n")
        elif not self._config:
            files = " ".join(_quoted(_own(name)) for name in ("known_hosts", "known_hosts2"))
            lines.append(f"Match all\nUserKnownHostsFile {files}\n")
        self._file.write_text(INSISTED + (ASK_KEYS if ask else "") + "".join(lines))
        self._file.chmod(0o600)

    def command(self, *options: str) -> list[str]:
        return [self.program, "-F", str(self._file), *options]

    def bare(self, *options: str) -> list[str]:
        """Command line of `ssh` with these options that reads no configuration file (for
        ControlMaster)."""
        return [self.program, "-F", "none", *options]

    async def resolve(self, options: list[str]) -> Resolved:
        """Effective settings by `ssh -G` for these options, which include the destination. Raises
        LaunchError `ssh.config_broken`."""
        process = await asyncio.create_subprocess_exec(
            *self.command("-G", *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode:
            raise config_problem(err.decode(errors="replace"))
        found: dict[str, list[str]] = {}
        for line in out.decode(errors="replace").splitlines():
            word, _, value = line.partition(" ")
            found.setdefault(word, []).append(value)
        jumps = found.get("proxyjump", [""])[0]
        host, port = found["hostname"][0], int(found["port"][0])
        files = " ".join(
            found.get("userknownhostsfile", []) + found.get("globalknownhostsfile", [])
        )
        return Resolved(
            user=found["user"][0],
            host=host,
            port=port,
            jumps=tuple(jumps.split(",")) if jumps and jumps != "none" else (),
            keys=tuple(
                one for one in found.get("identityfile", ()) if Path(one).expanduser().exists()
            ),
            certificates=tuple(found.get("certificatefile", ())),
            strict=found.get("stricthostkeychecking", ["ask"])[0] in ("true", "yes"),
            known_as=found.get("hostkeyalias", [""])[0]
            or (host if port == 22 else f"[{host}]:{port}"),
            known_hosts=tuple(Path(one).expanduser() for one in shlex.split(files)),
        )


def destination(address: Address) -> list[str]:
    user = ["-l", address.user] if address.user else []
    port = ["-p", str(address.port)] if address.port else []
    return [*user, *port, "--", address.host]


def _own(name: str) -> Path:
    return Path("~/.ssh").expanduser() / name


def _quoted(path: Path) -> str:
    return '"' + os.fspath(path.absolute()) + '"'
