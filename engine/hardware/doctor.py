"""Doctor: checks of this machine before a training fails on them (Python, memory, disk, GPUs)."""

import contextlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import apsw
import psutil

from engine.hardware.devices import TorchBuild, gpu_build, torch_build
from engine.hardware.gpus import Found, read_gpus
from engine.hardware.machine import device_words, has_native_bfloat16
from engine.launcher.local import default_workspace, runtime_dir
from engine.models.registry import STARTERS, cache_dir, problem_of
from engine.protocol.problems import LaunchError
from engine.protocol.records.machine.hardware import Card, Check

DRIVER_FLOOR = 580
"""Oldest Linux driver for CUDA 13, for which torch 2.13 and vLLM 0.31 are built."""
CAPABILITY_FLOOR = (7, 5)
"""Lowest compute capability that vLLM 0.31 supports (Turing)."""
NATIVE_BFLOAT16 = (8, 0)
GPU_ENGINE_BYTES = 15_000_000_000
"""Disk space of torch, vLLM, Unsloth and NVIDIA's libraries."""
KNOWN = {
    "torch": "2.13.0",
    "transformers": "5.17.0",
    "peft": "0.21.2",
    "vllm": "0.31.0",
    "unsloth": "2026.10.7",
}
"""Tested versions, as in the lock file of the GPU engine."""
SMALL_BYTES = 8_000_000_000
INSTALL = "Run `python3 packaging/bootstrap.py environment engine-gpu`."
NEEDED = ("torch", "transformers", "peft", "safetensors", "tokenizers")


def examine(workspace: Path | None = None) -> list[Check]:
    """Run all checks, in display order; `workspace` is the folder of projects (None: the default
    one)."""
    return [
        _python(),
        _packages(),
        _processor(),
        _memory(),
        *examine_graphics(read_gpus(), torch_build(), gpu_build(), cache_dir()),
        _disk(),
        _sqlite(),
        _runtime(workspace or default_workspace()),
        *[_model(starter.name, starter.title) for starter in STARTERS],
    ]


def _python() -> Check:
    good = (3, 11) <= sys.version_info < (3, 14)
    words = f"{platform.python_version()} at {sys.executable}"
    return _check("Python", good, words, "Atelier needs Python 3.11, 3.12 or 3.13.")


def _packages() -> Check:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    found = ", ".join(f"{name} {v}" for name, v in _installed(NEEDED).items())
    words = f"missing: {', '.join(missing)}" if missing else found
    return _check("Packages", not missing, words, "Run `python3 packaging/bootstrap.py setup`.")


def _processor() -> Check:
    native = has_native_bfloat16()
    words = f"{device_words()}, bfloat16 {'native' if native else 'not native'}"
    hint = "Training uses float32, which is about three times slower."
    return _check("Processor", native, words, hint, otherwise="warn")


def _memory() -> Check:
    memory = psutil.virtual_memory()
    words = f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free"
    hint = "The starter model needs about 3 GB; close other programs."
    return _check("Memory", memory.available > 3e9, words, hint, otherwise="warn")


def _disk() -> Check:
    folder = _existing(cache_dir())
    free = shutil.disk_usage(folder).free
    words, hint = (
        f"{free / 1e9:.1f} GB free at {folder}",
        "Free some space for models and checkpoints.",
    )
    return _check("Disk", free > 3e9, words, hint, otherwise="bad" if free < 1e9 else "warn")


def _sqlite() -> Check:
    found = tuple(map(int, apsw.sqlite_lib_version().split(".")))
    good = found >= (3, 51, 3) and found != (3, 52, 0)
    hint = "This SQLite version can corrupt a database in WAL mode: update apsw."
    return _check("SQLite", good, apsw.sqlite_lib_version(), hint)


def _runtime(workspace: Path) -> Check:
    try:
        folder = runtime_dir()
    except LaunchError as error:
        return Check(name="Runtime folder", state="bad", words=str(error), hint=error.problem.hint)
    writable = os.access(folder, os.W_OK) and os.access(_existing(workspace), os.W_OK)
    words = f"workspace {workspace}, runtime {folder}"
    hint = "Make both folders writable, or set ATELIER_WORKSPACE to another workspace."
    return _check("Folders", writable, words, hint)


def _model(name: str, title: str) -> Check:
    problem = problem_of(name)
    if problem:
        return Check(name=title, state="warn", words=problem.message, hint=problem.hint)
    return Check(name=title, state="good", words="on this machine")


def _existing(path: Path) -> Path:
    return next(p for p in [path, *path.parents] if p.exists())


def examine_graphics(
    found: Found, own: TorchBuild | None, gpu: TorchBuild | None, cache: Path
) -> list[Check]:
    """Check the GPUs `found`, driver and torch. `own` and `gpu` are the torch builds of this
    environment and of the GPU engine (None: not installed), `cache` is the folder where the latter
    would be installed."""
    if not found.cards:
        words = f"none, training runs on the CPU. {found.reason}".strip()
        return [Check(name="Graphics card", state="good", words=words)]
    return [
        _driver(found.cards[0]),
        *(_card(card) for card in found.cards),
        *_torch(own, gpu, cache),
        *_versions(),
    ]


def card_lacks(found: Found) -> str:
    """Reason why CUDA cannot be used on this machine, in a sentence; empty if it can."""
    if not found.cards:
        return f"{found.reason} The GPU engine can be installed, but cannot run without a GPU."
    driver = _driver(found.cards[0])
    return "" if driver.state != "bad" else f"The NVIDIA driver is too old. {driver.hint}"


def _driver(card: Card) -> Check:
    runs = f", runs CUDA {card.cuda[0]}.{card.cuda[1]}" if card.cuda else ""
    major = (card.driver or "").split(".")[0]
    if not major.isdecimal():
        return Check(name="NVIDIA driver", state="warn", words="does not report its version")
    hint = (
        f"CUDA 13 needs driver {DRIVER_FLOOR} or newer: install it from your distribution's "
        "packages and restart."
    )
    return _check("NVIDIA driver", int(major) >= DRIVER_FLOOR, f"{card.driver}{runs}", hint)


def _card(card: Card) -> Check:
    name = f"Card {card.index}"
    about = [card.name]
    if card.total_bytes is not None and card.free_bytes is not None:
        about.append(f"{card.free_bytes / 1e9:.1f} of {card.total_bytes / 1e9:.1f} GB free")
    if card.capability:
        about.append("compute capability {}.{}".format(*card.capability))
    words = ", ".join(about)
    if card.capability and card.capability < CAPABILITY_FLOOR:
        hint = "vLLM needs compute capability 7.5 or higher: train on the CPU or on a newer GPU."
        return Check(name=name, state="bad", words=words, hint=hint)
    if card.capability and card.capability < NATIVE_BFLOAT16:
        hint = "This GPU has no native bfloat16: float32 weights take twice the memory."
        return Check(name=name, state="warn", words=words, hint=hint)
    if card.free_bytes is not None and card.free_bytes < SMALL_BYTES:
        hint = (
            "Use a model below 1 billion parameters, use 4-bit weights, or stop other GPU programs."
        )
        return Check(name=name, state="warn", words=words, hint=hint)
    return Check(name=name, state="good", words=words)


def _torch(own: TorchBuild | None, gpu: TorchBuild | None, cache: Path) -> Iterator[Check]:
    for build in (own, gpu):
        if build is not None and build.cuda:
            words = f"torch {build.version}, built for CUDA {build.cuda}"
            yield Check(name="GPU engine", state="good", words=words)
            return
    words = f"torch {own.version} was built for the CPU only" if own else "torch is not installed"
    yield Check(name="GPU engine", state="warn", words=words, hint=INSTALL)
    folder = _existing(cache)
    free = shutil.disk_usage(folder).free
    words = f"{free / 1e9:.1f} GB free at {folder}, about {GPU_ENGINE_BYTES / 1e9:.0f} needed"
    hint = "Free some space, or set XDG_CACHE_HOME to a folder on a larger disk."
    yield _check("Disk, GPU engine", free > GPU_ENGINE_BYTES, words, hint)


def _versions() -> Iterator[Check]:
    found = {name: v.split("+")[0] for name, v in _installed(KNOWN).items()}
    other = [f"{name} {v} (tested: {KNOWN[name]})" for name, v in found.items() if v != KNOWN[name]]
    if found:
        words = ", ".join(other or [f"{name} {v}" for name, v in found.items()])
        hint = "Install the locked versions: other combinations were not tested."
        yield _check("Versions", not other, words, hint, otherwise="warn")


def _check(
    name: str, good: bool, words: str, hint: str, otherwise: Literal["warn", "bad"] = "bad"
) -> Check:
    return Check(
        name=name, state="good" if good else otherwise, words=words, hint="" if good else hint
    )


def _installed(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
