"""A container image made of this machine's own Python, a shell and a few commands."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import pytest

NAME = f"localhost/atelier-tests:{platform.python_version()}"
"""Kept by Podman for the next tests."""
COMMANDS = ("sh", "cat", "head", "sleep")
MARK = "made for tests"
"""Content of /etc/image-mark, by which a test knows that it sees the image."""
LEFT_OUT = shutil.ignore_patterns("test", "site-packages", "__pycache__", "config-*", "idlelib")
needs_podman = pytest.mark.skipif(shutil.which("podman") is None, reason="Podman is not installed")


@cache
def podman_problem() -> str:
    """Reason why Podman cannot keep images here, as in some containers; empty if it can. Found
    without Atelier's own code."""
    with tempfile.TemporaryDirectory() as folder:
        archive, trial = Path(folder, "empty.tar"), f"atelier-trial-{os.getpid()}"
        name = f"localhost/{trial}:1"
        commands = (
            ["tar", "-C", folder, "-cf", str(archive), "--files-from", "/dev/null"],
            ["podman", "import", "--quiet", str(archive), name],
            ["podman", "create", "--name", trial, name, "/none"],
            ["podman", "export", "--output", str(Path(folder, "out.tar")), trial],
        )
        try:
            for command in commands:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    return f"{' '.join(command[:2])}: {done.stderr.strip()[-200:]}"
        finally:
            for what in (["rm", "--force", trial], ["rmi", "--force", name]):
                subprocess.run(["podman", *what], capture_output=True, check=False)
    return ""


@cache
def python_image() -> str:
    """Return the name of an image whose PATH has python3; makes it if Podman has none. Skips the
    test if Podman cannot keep images here."""
    if problem := podman_problem():
        pytest.skip(f"Podman cannot keep images here: {problem}")
    if not subprocess.run(["podman", "image", "exists", NAME], check=False).returncode:
        return NAME
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        standard = Path(sysconfig.get_path("stdlib"))
        shutil.copytree(standard, root / str(standard).lstrip("/"), ignore=LEFT_OUT, symlinks=True)
        python = Path(sys.executable).resolve()
        programs = [python, *(Path(shutil.which(name) or "").resolve() for name in COMMANDS)]
        modules = list(standard.glob("lib-dynload/*.so"))
        for file in {*programs, *libraries([*programs, *modules])}:
            _copy(file, root)
        bin_folder = root / "usr" / "bin"
        bin_folder.mkdir(parents=True, exist_ok=True)
        (bin_folder / "python3").symlink_to(python)
        for name in COMMANDS:
            if not (bin_folder / name).exists():
                (bin_folder / name).symlink_to(Path(shutil.which(name) or "").resolve())
        if not (root / "bin").exists():
            (root / "bin").symlink_to("usr/bin")
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc" / "image-mark").write_text(MARK)
        archive = Path(folder, "image.tar")
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        subprocess.run(
            ["podman", "import", "--quiet", "--change", "ENV PATH=/usr/bin", "--change",
             "ENV LANG=C.UTF-8", str(archive), NAME],
            check=True, capture_output=True,
        )  # fmt: skip
    return NAME


def libraries(files: list[Path]) -> list[Path]:
    """Shared libraries of programs and modules, and the loader, as `ldd` lists them."""
    listed = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=False
    ).stdout
    return [Path(one) for one in set(re.findall(r"(/\S+) \(0x", listed))]


def _copy(file: Path, root: Path) -> None:
    """Copy a file to its path in the image, links on the way followed."""
    target = root / str(file).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(os.path.realpath(file), target)
