"""Doctor: checks of this machine before a training fails on them (Python, memory, disk, GPUs)."""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw
import psutil

from engine.hardware.devices import TorchBuild, gpu_build, torch_build
from engine.hardware.gpus import Found, read_gpus
from engine.hardware.machine import device_words, has_native_bfloat16
from engine.launcher.local import default_workspace, runtime_dir
from engine.models.registry import STARTERS, cache_dir, problem_of
from engine.protocol.problems import LaunchError
from engine.protocol.records.hardware import Card, Check

DRIVER_FLOOR = 580
"""Oldest Linux driver that runs CUDA 13, for which torch 2.13 and vLLM 0.31 are built."""
CAPABILITY_FLOOR = (7, 5)
"""Lowest compute capability of vLLM 0.31: Turing."""
NATIVE_BFLOAT16 = (8, 0)
GPU_ENGINE_BYTES = 15_000_000_000
"""torch, vLLM, Unsloth and NVIDIA's libraries, unpacked."""
KNOWN = {
    "torch": "2.13.0",
    "transformers": "5.17.0",
    "peft": "0.21.2",
    "vllm": "0.31.0",
    "unsloth": "2026.10.7",
}
"""Versions that work together, as in the lock of the GPU engine."""
SMALL_BYTES = 8_000_000_000
INSTALL = "Run `python3 packaging/bootstrap.py environment engine-gpu`."


def examine_graphics(
    found: Found, own: TorchBuild | None, gpu: TorchBuild | None, cache: Path
) -> list[Check]:
    """`own` and `gpu`: torch of this environment, and of the GPU engine's. `cache`: where that
    would be installed."""
    if not found.cards:
        told = f"none, training runs on the processor. {found.reason}".strip()
        return [Check(name="Graphics card", state="good", words=told)]
    return [
        _driver(found.cards[0]),
        *(_card(card) for card in found.cards),
        *_torch(own, gpu, cache),
        *_versions(),
    ]


def card_lacks(found: Found) -> str:
    """Reason why CUDA cannot be used on this machine, in a sentence; empty if it can."""
    if not found.cards:
        return f"{found.reason} It can be installed, and is of use only with a card."
    driver = _driver(found.cards[0])
    return "" if driver.state != "bad" else f"The NVIDIA driver is too old. {driver.hint}"


def _driver(card: Card) -> Check:
    runs = f", runs CUDA {card.cuda[0]}.{card.cuda[1]}" if card.cuda else ""
    major = (card.driver or "").split(".")[0]
    if not major.isdecimal():
        return Check(name="NVIDIA driver", state="warn", words="does not tell its version")
    good = int(major) >= DRIVER_FLOOR
    return Check(
        name="NVIDIA driver",
        state="good" if good else "bad",
        words=f"{card.driver}{runs}",
        hint=""
        if good
        else f"CUDA 13 needs {DRIVER_FLOOR} or newer: install it by your distribution's packages "
        "and restart.",
    )


def _card(card: Card) -> Check:
    name = f"Card {card.index}"
    about = [card.name]
    if card.total_bytes is not None and card.free_bytes is not None:
        about.append(f"{card.free_bytes / 1e9:.1f} of {card.total_bytes / 1e9:.1f} GB free")
    if card.capability:
        about.append("compute capability {}.{}".format(*card.capability))
    words = ", ".join(about)
    if card.capability and card.capability < CAPABILITY_FLOOR:
        hint = "vLLM needs 7.5 or higher: train on the processor, or on another card."
        return Check(name=name, state="bad", words=words, hint=hint)
    if card.capability and card.capability < NATIVE_BFLOAT16:
        hint = "It has no bfloat16 of its own: weights are float32 and take twice the memory."
        return Check(name=name, state="warn", words=words, hint=hint)
    if card.free_bytes is not None and card.free_bytes < SMALL_BYTES:
        hint = "Take a model below 1 billion parameters, or 4 bits; end what else runs on it."
        return Check(name=name, state="warn", words=words, hint=hint)
    return Check(name=name, state="good", words=words)


def _torch(own: TorchBuild | None, gpu: TorchBuild | None, cache: Path) -> Iterator[Check]:
    for build in (own, gpu):
        if build is not None and build.cuda:
            words = f"torch {build.version}, built for CUDA {build.cuda}"
            yield Check(name="GPU engine", state="good", words=words)
            return
    words = f"torch {own.version} knows only the processor" if own else "there is no torch"
    yield Check(name="GPU engine", state="warn", words=words, hint=INSTALL)
    folder = next(place for place in [cache, *cache.parents] if place.exists())
    free = shutil.disk_usage(folder).free
    enough = free > GPU_ENGINE_BYTES
    yield Check(
        name="Disk for it",
        state="good" if enough else "bad",
        words=f"{free / 1e9:.1f} GB free at {folder}, about {GPU_ENGINE_BYTES / 1e9:.0f} needed",
        hint="" if enough else "Free some, or set XDG_CACHE_HOME to a larger disk.",
    )


def _versions() -> Iterator[Check]:
    """Checks of installed packages; missing ones are skipped."""
    found = {}
    for name in KNOWN:
        try:
            found[name] = version(name).split("+")[0]
        except PackageNotFoundError:
            continue
    other = [f"{name} {v} (known: {KNOWN[name]})" for name, v in found.items() if v != KNOWN[name]]
    if not found:
        return
    yield Check(
        name="Versions",
        state="warn" if other else "good",
        words=", ".join(other) if other else ", ".join(f"{n} {v}" for n, v in found.items()),
        hint="Install the locked ones: others were never run together here." if other else "",
    )


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
