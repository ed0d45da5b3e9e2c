"""The checkout's own environment, .venv: made, filled from the locks, never done twice. Standard
library only.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import place
from variables import without_secrets

ROOT = Path(__file__).resolve().parents[1]
ORIGIN = ROOT / "origin.txt"
"""Beside a copy of us in another environment: the checkout whose .venv we work with."""
LOCKS = ROOT / "packaging" / "locks"
VENV = (Path(ORIGIN.read_text().strip()) if ORIGIN.exists() else ROOT) / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "atelier-installed.json"
PYTHONS = ((3, 11), (3, 12), (3, 13))


class Failed(Exception):
    """Said to the person as it is; exit 1."""


def ensure_environment() -> None:
    if PYTHON.exists():
        return
    interpreter = find_python()
    say(f"Making .venv with {interpreter}")
    done = subprocess.run([interpreter, "-m", "venv", str(VENV)], check=False)
    if done.returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        hint = (
            "apt-get install python3-venv" if shutil.which("apt-get") else "install Python's venv"
        )
        raise Failed(f"{interpreter} could not make an environment. Try: {hint}")


def ensure_command() -> None:
    """Write `.venv/bin/atelier`, the command line, which works from every folder."""
    if os.name == "nt":
        file, text = BIN / "atelier.bat", f'@set PYTHONPATH={ROOT}\n@"{PYTHON}" -m engine %*\n'
    else:
        path = f"{ROOT}${{PYTHONPATH:+:$PYTHONPATH}}"
        file = BIN / "atelier"
        text = f'#!/bin/sh\nPYTHONPATH="{path}" exec "{PYTHON}" -m engine "$@"\n'
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
        file.chmod(0o755)


def find_python() -> str:
    """This interpreter if it is 3.11, else the first fitting one on PATH, else this one."""
    if sys.version_info[:2] == PYTHONS[0]:
        return sys.executable
    for major, minor in PYTHONS:
        found = shutil.which(f"python{major}.{minor}")
        if found and succeeds([found, "-c", "import venv"]):
            return found
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    raise Failed(
        f"Atelier needs Python 3.11, 3.12 or 3.13; this is {platform.python_version()} and no "
        "other was found. Install one and run the command again."
    )


def ensure_packages(locks: list[str]) -> None:
    files = [LOCKS / f"{name}.txt" for name in locks]
    wanted = {file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    missing = [file for file in files if stamped().get(file.stem) != wanted[file.stem]]
    if not missing:
        return
    ensure_pip()
    installed = stamped()
    for file in missing:
        install(file.stem, file)
        installed[file.stem] = wanted[file.stem]
        STAMP.write_text(json.dumps(installed))
    if "engine-cpu" in locks:
        ensure_torch()


def stamped() -> dict[str, str]:
    """What was installed into .venv, by set: the hash of its lock."""
    return json.loads(STAMP.read_text()) if STAMP.exists() else {}


def ensure_pip() -> None:
    """The pip of the lock: older ones do not say how far they are."""
    if "pip" not in (installed := stamped()):
        install("pip", LOCKS / "pip.txt", quiet=True)
        STAMP.write_text(json.dumps({**installed, "pip": "1"}))


def install(name: str, lock: Path, quiet: bool = False) -> None:
    count = sum("==" in line and line[0] != " " for line in lock.read_text().splitlines())
    if not quiet:
        say(f"Installing {name}: {count} packages")
    pip_or_fail(["install", "--no-deps", "--require-hashes", "-r", str(lock)], name)


def ensure_torch() -> None:
    """The pinned torch, from wherever pip finds it; its hash must be one of the lock's.

    Where that is a CUDA build, the NVIDIA libraries that it needs come too.
    """
    pinned, *hashes = (LOCKS / "torch.txt").read_text().replace("\\", "").split()
    if not succeeds(
        [str(PYTHON), "-c", f"import torch; assert torch.__version__ >= {pinned[7:]!r}"]
    ):
        say(f"Installing {pinned}")
        wheels = VENV / "downloads"
        pip_or_fail(["download", "--no-deps", "--dest", str(wheels), pinned], "torch")
        wheel = next(wheels.glob("torch-*.whl"))
        if f"--hash=sha256:{place.sha256(wheel)}" not in hashes:
            wheel.unlink()
            raise Failed("The torch that arrived is not the locked one (its hash differs).")
        pip_or_fail(["install", "--no-deps", str(wheel)], "torch")
        shutil.rmtree(wheels)
    if not succeeds([str(PYTHON), "-c", "import torch"]):
        say("This torch is a CUDA build: installing the libraries it needs (about 3 GB)")
        pip_or_fail(["install", pinned], "torch")


def pip_or_fail(arguments: list[str], name: str) -> None:
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "5"]
    if subprocess.call([*pip, *arguments], cwd=ROOT, env=without_secrets()):
        raise Failed(
            f"The packages of {name} could not be installed (pip says why above). "
            "What has arrived is kept: run the same command again."
        )


def succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, cwd=ROOT).returncode == 0


def say(text: str) -> None:
    print(text, flush=True)
