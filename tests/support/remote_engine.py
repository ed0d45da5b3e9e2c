"""Engine on the server side of an SSH connection, without an installation: links to the checkout
and its environment in the place of an installed one."""

import os
import sys
from pathlib import Path

import platformdirs

from engine.launcher.engine_root import PARTS
from engine.launcher.source_files import engine_id
from engine.protocol.requests.remote import Answer, HostSpec, HostView
from engine.remote.install.install import MARK
from tests.support.ssh_server import FarSide

ROOT = Path(__file__).parents[2]
NAME = "box"


def link_engine(base: Path, kind: str = "engine-cpu") -> Path:
    """Write what `hosts install` would write."""
    home = base / "engines" / engine_id(kind)
    home.mkdir(parents=True)
    for part in PARTS:
        (home / part).symlink_to(ROOT / part)
    # a real folder, not a link: Python finds its packages relative to itself
    (home / ".venv" / "bin").mkdir(parents=True)
    python = home / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (home / "ready").write_text("{}")
    (base / MARK).touch()
    (base / "current").symlink_to(f"engines/{home.name}")
    return home


def link_environments(*bases: Path) -> Path:
    """Link the environments of engines to those of the user, so that they are installed once.

    Return their folder.
    """
    environments = Path(platformdirs.user_cache_dir("atelier")) / "environments"
    environments.mkdir(parents=True, exist_ok=True)
    for base in bases:
        (base / "cache" / "atelier").mkdir(parents=True)
        (base / "cache" / "atelier" / "environments").symlink_to(environments)
    return environments


def spec_of(far: FarSide, name: str = NAME) -> HostSpec:
    return HostSpec(name=name, address=f"trainer@127.0.0.1:{far.port}", engine="engine-cpu")


def authorize_user(home: Path, far: FarSide) -> None:
    """Write ~/.ssh of a user who has connected before: key, and the server's host key."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, parents=True, exist_ok=True)
    (ssh / "known_hosts").write_text(far.known())
    (ssh / "config").write_text(
        f"Host 127.0.0.1\n  IdentityFile {far.keys.path('user')}\n  IdentitiesOnly yes\n"
    )
    for file in ssh.iterdir():
        file.chmod(0o600)


def accept_host_keys(view: HostView) -> list[Answer]:
    """Answer yes to every host key prompt."""
    return [Answer(question=one.id, value="yes") for one in view.questions]


def environment_of_home(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home)}
