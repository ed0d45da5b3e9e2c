"""User's SSH configuration, read for settings and for aliases; and addresses."""

import os
import random
from pathlib import Path
from unittest.mock import patch

from engine.protocol.problems import LaunchError
from engine.remote.ssh.address import config_hosts, parse_address
from engine.remote.ssh.settings import read_settings
from tests.fuzz.mutation import mutate as change

REFUSALS = (LaunchError,)
CONFIG = b"""
Include conf.d/*.conf
Host gpu1 gpu2 !gpu3 *.cluster
    HostName %h.example.org
    User = "alice"
    Port 2200
    ProxyJump bastion,bob@inner:2200
    ProxyCommand nc %h %p
Match originalhost bastion
    IdentityFile ~/.ssh/%h
    IdentitiesOnly yes
    HostKeyAlias the-bastion
Match user alice
    UserKnownHostsFile ~/.ssh/alice_hosts /dev/null
    StrictHostKeyChecking yes
    IdentityAgent $SSH_AUTH_SOCK
Host *
    HashKnownHosts yes
    CertificateFile ~/.ssh/cert
    GlobalKnownHostsFile none
"""


def seeds() -> list[bytes]:
    return [b"gpu1\n" + CONFIG, b"me@x.cluster:22\n" + CONFIG, b"[::1]:22\nHost *\nPort 1\n"]


def mutate(seed: bytes, rng: random.Random) -> bytes:
    """Change the configuration, and sometimes the address.

    `exec` is replaced, because it runs commands.
    """
    address, _, config = seed.partition(b"\n")
    if rng.random() < 0.3:
        address = change(address, rng).replace(b"\n", b"")
    return (address + b"\n" + change(config, rng)).replace(b"exec", b"host")


def execute(data: bytes, folder: Path) -> None:
    """The first line is an address, the rest a configuration."""
    address, _, config = data.partition(b"\n")
    file = folder / "config"
    file.write_bytes(config)
    home = {"HOME": str(folder), "SSH_AUTH_SOCK": ""}
    with patch.dict(os.environ, home):
        config_hosts(file)
        address_parts = parse_address(address.decode(errors="replace"))
        assert not set(address_parts.host + (address_parts.user or "")) & set(
            "$`;|&<>'\"(){}\\ \n\0\x1b"
        )
        read_settings(address_parts, file)
