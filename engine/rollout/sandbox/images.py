"""Container images as the file system of sandboxes: Podman or Docker keeps them, and they are
unpacked once into the user's cache."""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import platformdirs

from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError

PROGRAMS = ("podman", "docker")
SETTING = "agent.image"
KEPT_DAYS = 30
"""Days after its last use for which an unpacked image is kept."""
COMMAND_S, UNPACK_S = 60.0, 1800.0


class Image(NamedTuple):
    """Image that Podman or Docker has on this machine."""

    name: str
    program: str
    id: str
    environment: dict[str, str]

    @property
    def folder(self) -> Path:
        """Folder of its unpacked files."""
        return images_folder() / self.id.removeprefix("sha256:")

    @property
    def is_unpacked(self) -> bool:
        return self.folder.is_dir()


def images_folder() -> Path:
    return Path(platformdirs.user_cache_dir("atelier")) / "images"


def image_names(config: AgentConfig) -> list[str]:
    """Images of an agent: its own, and that of its rewards if it is another one."""
    names = (config.image, config.rewards_image)
    return list(dict.fromkeys(name for name in names if name))


def find_image(name: str) -> Image:
    """Look up an image by name or id. Raises ConfigError without Podman and Docker, or if neither
    has the image."""
    programs = [path for one in PROGRAMS if (path := shutil.which(one))]
    if not programs:
        raise ConfigError.of(
            "sandbox.no_container_program",
            "agent.sandbox is container, and this machine has neither Podman nor Docker.",
            "Install Podman (Debian and Ubuntu: sudo apt install podman), or set agent.sandbox to "
            "process.",
            where="agent.sandbox",
        )
    why = ""
    for program in programs:
        found = _run(program, "image", "inspect", name)
        if found.returncode == 0:
            described = json.loads(found.stdout)[0]
            variables = (described.get("Config") or {}).get("Env") or []
            pairs = (one.partition("=") for one in variables)
            return Image(name, program, described["Id"], {key: value for key, _, value in pairs})
        why = why or (found.stderr.strip().splitlines() or ["it gives no reason"])[-1]
    raise ConfigError.of(
        "sandbox.no_image",
        f"The image {name} is not on this machine ({Path(programs[0]).name}: {why[:200]}).",
        f"Get it with `{Path(programs[0]).name} pull {name}`, or build it under that name.",
        where=SETTING,
    )


def unpack(image: Image) -> Path:
    """Return the folder with the files of an image, unpacked on the first call. Raises ConfigError
    if that fails. Takes up to minutes."""
    home = images_folder()
    home.mkdir(parents=True, exist_ok=True)
    if not image.is_unpacked:
        _remove_unused(home)
        with tempfile.TemporaryDirectory(dir=home, prefix=".new-") as scratch:
            target = Path(scratch, "files")
            target.mkdir()
            _export(image, target)
            try:
                target.rename(image.folder)
            except OSError:
                if not image.is_unpacked:  # else another engine was first
                    raise
    _mark_path(image.folder).touch()
    return image.folder


def python_in(folder: Path, environment: dict[str, str], wanted: str | None) -> str:
    """Path of a Python inside the image: `wanted`, or the first python3 of the image's PATH. Raises
    ConfigError if there is none."""
    places = environment.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    paths = [wanted] if wanted else [f"{place}/python3" for place in places]
    for path in paths:
        inside = folder / path.lstrip("/")
        if inside.is_symlink() or inside.is_file():
            return path
    raise ConfigError.of(
        "sandbox.no_python",
        f"The image has no {wanted or 'python3 on its PATH'}.",
        "Use an image with Python 3.9 or newer, such as python:3.12-slim, or set agent.python to "
        "its path in the image.",
        where="agent.python" if wanted else SETTING,
    )


def _export(image: Image, target: Path) -> None:
    """Write the files of an image to a folder, as this user's."""
    created = _run(image.program, "create", image.id, "/none")
    if created.returncode:
        raise _not_unpacked(image, created.stderr)
    container = created.stdout.strip().splitlines()[-1]
    try:
        source = subprocess.Popen(
            [image.program, "export", container],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        assert source.stdout is not None
        assert source.stderr is not None
        unpacked = subprocess.run(
            ["tar", "--extract", "--no-same-owner", "--delay-directory-restore",
             "--exclude=dev/*", f"--directory={target}"],
            stdin=source.stdout,
            capture_output=True,
            text=True,
            timeout=UNPACK_S,
            check=False,
        )  # fmt: skip
        source.stdout.close()
        errors = source.stderr.read().decode(errors="replace")
        source.stderr.close()
        if source.wait() or unpacked.returncode:
            raise _not_unpacked(image, errors or unpacked.stderr)
    finally:
        _run(image.program, "rm", "--force", container)


def _not_unpacked(image: Image, output: str) -> ConfigError:
    why = (output.strip().splitlines() or ["no reason was given"])[-1]
    return ConfigError.of(
        "sandbox.not_unpacked",
        f"The image {image.name} could not be unpacked: {why[:300]}.",
        "Look at the disk space of the cache folder, and at the program's own messages.",
        where=SETTING,
    )


def _run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def _mark_path(folder: Path) -> Path:
    """File whose time is that of the last use of an unpacked image."""
    return folder.with_name(f"{folder.name}.used")


def _remove_unused(home: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 86_400
    for mark in home.glob("*.used"):
        if mark.stat().st_mtime < oldest:
            mark.unlink()
            shutil.rmtree(mark.with_suffix(""))
