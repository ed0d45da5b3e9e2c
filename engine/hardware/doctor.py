"""Doctor: checks of this machine before a training fails on them."""

import importlib.util
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw
import psutil

from engine.hardware.devices import gpu_build, torch_build
from engine.hardware.gpu_doctor import examine_graphics
from engine.hardware.gpus import read_gpus
from engine.hardware.machine import device_words, has_native_bfloat16
from engine.launcher.local import default_workspace, runtime_dir
from engine.models.registry import STARTERS, cache_dir, problem_of
from engine.protocol.problems import LaunchError
from engine.protocol.records.hardware import Check

NEEDED = ("torch", "transformers", "peft", "safetensors", "tokenizers")


def examine() -> list[Check]:
    """All checks, in the order a person would look."""
    return [
        _python(),
        _packages(),
        _processor(),
        _memory(),
        *examine_graphics(read_gpus(), torch_build(), gpu_build(), cache_dir()),
        _disk(),
        _sqlite(),
        _runtime(),
        *[_model(starter.name, starter.title) for starter in STARTERS],
    ]


def _python() -> Check:
    good = (3, 11) <= sys.version_info < (3, 14)
    return Check(
        name="Python",
        state="good" if good else "bad",
        words=f"{platform.python_version()} at {sys.executable}",
        hint="" if good else "Atelier needs Python 3.11, 3.12 or 3.13.",
    )


def _packages() -> Check:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    found = []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return Check(
        name="Packages",
        state="bad" if missing else "good",
        words=f"missing: {', '.join(missing)}" if missing else ", ".join(found),
        hint="Run `python3 packaging/bootstrap.py setup`." if missing else "",
    )


def _processor() -> Check:
    native = has_native_bfloat16()
    return Check(
        name="Processor",
        state="good" if native else "warn",
        words=f"{device_words()}, bfloat16 {'native' if native else 'not native'}",
        hint="" if native else "Training runs in float32, about three times slower.",
    )


def _memory() -> Check:
    memory = psutil.virtual_memory()
    enough = memory.available > 3e9
    return Check(
        name="Memory",
        state="good" if enough else "warn",
        words=f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free",
        hint="" if enough else "The starter model needs about 3 GB; close something.",
    )


def _disk() -> Check:
    folder = next(p for p in [cache_dir(), *cache_dir().parents] if p.exists())
    free = shutil.disk_usage(folder).free
    return Check(
        name="Disk",
        state="good" if free > 3e9 else "bad" if free < 1e9 else "warn",
        words=f"{free / 1e9:.1f} GB free at {folder}",
        hint="" if free > 3e9 else "Models and checkpoints need room; free some.",
    )


def _sqlite() -> Check:
    found = tuple(map(int, apsw.sqlite_lib_version().split(".")))
    good = found >= (3, 51, 3) and found != (3, 52, 0)
    return Check(
        name="SQLite",
        state="good" if good else "bad",
        words=apsw.sqlite_lib_version(),
        hint="" if good else "Older versions can corrupt a database in WAL mode: update apsw.",
    )


def _runtime() -> Check:
    try:
        folder = runtime_dir()
    except LaunchError as error:
        return Check(name="Runtime folder", state="bad", words=str(error), hint=error.problem.hint)
    writable = os.access(folder, os.W_OK) and os.access(_existing(default_workspace()), os.W_OK)
    return Check(
        name="Folders",
        state="good" if writable else "bad",
        words=f"workspace {default_workspace()}, runtime {folder}",
        hint="" if writable else "Make them writable, or set ATELIER_WORKSPACE.",
    )


def _model(name: str, title: str) -> Check:
    problem = problem_of(name)
    return Check(
        name=title,
        state="warn" if problem else "good",
        words=problem.message if problem else "on this machine",
        hint=problem.hint if problem else "",
    )


def _existing(path: Path) -> Path:
    return next(p for p in [path, *path.parents] if p.exists())
