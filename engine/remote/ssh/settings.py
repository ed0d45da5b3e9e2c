"""SSH settings of one server in the person's configuration, read by AsyncSSH.

AsyncSSH's parser supports Host, Match, Include and tokens. Added here are settings about host keys,
and which of ProxyJump and ProxyCommand came first.
"""

import getpass
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncssh import Error
from asyncssh.config import ConfigParseError, SSHClientConfig, SSHConfig

from engine.remote.ssh.address import Address, server_name
from engine.remote.ssh.problems import Place, config_broken, needs_system

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
KNOWN_BY_ALL = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
"""Default key files in ~/.ssh, in the order of OpenSSH."""
SECURITY = ("RevokedHostKeys", "KnownHostsCommand")
"""Security settings whose meaning only `ssh` itself implements."""


class _Reader(SSHClientConfig):
    """Configuration reader that also keeps options that AsyncSSH ignores."""

    _handlers = {  # noqa: RUF012 - the table of the class above
        **SSHClientConfig._handlers,
        "hashknownhosts": ("HashKnownHosts", SSHConfig._set_bool),
        "stricthostkeychecking": ("StrictHostKeyChecking", SSHConfig._set_bool_or_str),
        "revokedhostkeys": ("RevokedHostKeys", SSHConfig._set_string),
        "knownhostscommand": ("KnownHostsCommand", SSHConfig._set_string_list),
    }
    _percent_expand = SSHClientConfig._percent_expand | {"UserKnownHostsFile", "ProxyJump"}


@dataclass(frozen=True)
class Settings:
    """SSH settings of one server."""

    address: Address
    """Address as it was typed; `Host` lines match this."""
    host: str
    user: str
    port: int
    configs: tuple[Path, ...]
    """Configuration files that were read."""
    jumps: tuple[str, ...]
    proxy: str | None
    """ProxyCommand, a command line for a shell."""
    host_key_alias: str | None
    user_files: tuple[Path, ...]
    """User's known_hosts files; new keys go into the first one. Empty: none are recorded."""
    global_files: tuple[Path, ...]
    hashed: bool
    never_ask: bool
    """An unknown host key is refused without a question."""
    algorithms: str | None
    """Host key algorithms, if the configuration lists them."""
    keys: tuple[Path, ...]
    """Files of private or public keys, in the order in which they are tried."""
    certificates: tuple[Path, ...]
    agent: Path | None
    only_these: bool
    """IdentitiesOnly: other keys of the agent are not tried."""

    @property
    def server(self) -> str:
        return server_name(self.user, self.host, self.port)

    def known_as(self, host: str) -> str:
        """Name under which a host is listed in known_hosts, in lower case as in OpenSSH."""
        if self.host_key_alias:
            return self.host_key_alias.lower()
        return host.lower() if self.port == 22 else f"[{host.lower()}]:{self.port}"


def config_files(config: Path | None) -> tuple[Path, ...]:
    """SSH configuration files to read: only `config` if given, else the user's and the system's."""
    if config is not None:
        return (config,)
    return tuple(one for one in (Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG) if one.exists())


def read_settings(
    address: Address, config: Path | None = None, known_hosts: Path | None = None
) -> Settings:
    """Read the settings of a server; blocks while `Match exec` runs. `known_hosts` is used if the
    configuration names no such file. Raises LaunchError `ssh.config_broken`, `ssh.needs_system`."""
    files = config_files(config)
    try:
        read = _read(address, files, final=False)
        if read.has_match_final():
            read = _read(address, files, final=True)
        found = read.get_options(False)
        settings = _settings(address, files, found, known_hosts)
    except ConfigParseError as error:
        found_at = re.fullmatch(r"(.*) line (\d+): (.*)", str(error), re.DOTALL)
        where = f"{found_at[1]}:{found_at[2]}" if found_at else ""
        raise config_broken(where, found_at[3] if found_at else str(error)) from error
    except OSError as error:
        raise config_broken(str(error.filename), error.strerror or str(error)) from error
    except (Error, ValueError, RuntimeError, LookupError) as error:  # no text, value or home
        raise config_broken(", ".join(map(str, files)), str(error)) from error
    for name in SECURITY:
        if found.get(name) not in (None, [], ["none"]):
            raise needs_system(Place(settings.server), name)
    return settings


def _read(address: Address, files: Sequence[Path], final: bool) -> SSHConfig:
    """Load the configuration; an explicit user or port of the address takes precedence."""
    user, port = address.user or (), address.port or ()
    return _Reader.load(
        None, list(files), False, False, final, getpass.getuser(), user, address.host, port
    )


def _settings(
    address: Address, files: tuple[Path, ...], found: dict[str, Any], known_hosts: Path | None
) -> Settings:
    ways = [name for name in found if name in ("ProxyJump", "ProxyCommand")]
    first = ways[0] if ways and found[ways[0]] else ""
    home = Path("~/.ssh").expanduser()
    own = [known_hosts] if known_hosts else [home / "known_hosts", home / "known_hosts2"]
    keys = _paths(found.get("IdentityFile"))
    return Settings(
        address=address,
        host=found.get("Hostname") or address.host,
        user=found.get("User") or getpass.getuser(),
        port=int(found.get("Port") or 22),
        configs=files,
        jumps=tuple(found["ProxyJump"].split(",")) if first == "ProxyJump" else (),
        proxy=found["ProxyCommand"] if first == "ProxyCommand" else None,
        host_key_alias=found.get("HostKeyAlias"),
        user_files=tuple(
            own if (own_set := _paths(found.get("UserKnownHostsFile"))) is None else own_set
        ),
        global_files=KNOWN_BY_ALL
        if (all_set := _paths(found.get("GlobalKnownHostsFile"))) is None
        else all_set,
        hashed=bool(found.get("HashKnownHosts")),
        never_ask=found.get("StrictHostKeyChecking") is True,
        algorithms=found.get("HostKeyAlgorithms"),
        keys=tuple(home / name for name in KEYS) if keys is None else keys,
        certificates=_paths(found.get("CertificateFile")) or (),
        agent=_agent(found),
        only_these=bool(found.get("IdentitiesOnly")),
    )


def _paths(names: list[str] | None) -> tuple[Path, ...] | None:
    """Paths of an option without /dev/null; None if the option is not set."""
    if names is None:
        return None
    return tuple(Path(name).expanduser() for name in names if name != os.devnull)


def _agent(found: dict[str, Any]) -> Path | None:
    value = found.get("IdentityAgent", "SSH_AUTH_SOCK")
    if value and value.startswith("$"):
        value = os.environ.get(value[1:].strip("{}"), "")
    elif value == "SSH_AUTH_SOCK":
        value = os.environ.get("SSH_AUTH_SOCK", "")
    return Path(value).expanduser() if value else None
