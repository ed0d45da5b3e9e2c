"""Locks of an engine: one engine per workspace, one training run per GPU or CPU."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.launcher.local import runtime_dir
from engine.protocol.problems import Refused
from engine.protocol.records.machine.hardware import Card
from engine.runtime.locks import Busy, released, take_lock

PATIENCE_S = 20.0
"""Seconds to wait for an engine that holds the lock while it starts or exits."""


@contextlib.contextmanager
def workspace_lock(workspace: Path, discovery: Path) -> Iterator[None]:
    """Hold the lock of a workspace during the block. Raises Refused with the holder if another
    engine has it; a holder without the file `discovery` is starting or exiting, and is waited for
    up to `PATIENCE_S` seconds."""
    folder = workspace / ".atelier"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = _take(folder / "lock", discovery)
    except Busy as busy:
        raise Refused.of(
            "engine.workspace_locked",
            f"Another engine (process {busy.holder or '?'}) is using {workspace}.",
            "Use that engine, or stop it first.",
            where=str(folder / "lock"),
        ) from None
    with released(descriptor):
        yield


def _take(file: Path, discovery: Path) -> int:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return take_lock(file, holder=str(os.getpid()))
        except Busy:
            if discovery.exists() or time.monotonic() > end:
                raise
        time.sleep(0.1)


@contextlib.contextmanager
def device_lock(cards: Sequence[Card] = (), who: str = "") -> Iterator[None]:
    """Hold the lock of each of these GPUs (of the CPU if there are none) during the block. Raises
    Refused if another engine of the user holds one. `who` describes this holder in the Refused of
    others."""
    with contextlib.ExitStack() as stack:
        for card in cards:
            place = f"GPU {card.index} ({card.name})"
            stack.enter_context(_held(f"card-{_safe(card.uuid)}.lock", place, who))
        if not cards:
            stack.enter_context(_held("device.lock", "this machine", who))
        yield


@contextlib.contextmanager
def _held(name: str, place: str, who: str) -> Iterator[None]:
    try:
        descriptor = take_lock(
            runtime_dir() / name, holder=f"{who} (process {os.getpid()})".strip()
        )
    except Busy as busy:
        raise Refused.of(
            "run.device_busy",
            f"Another engine of yours is training on {place}: {busy.holder or 'an older engine'}.",
            "Wait until that training has finished, or stop it first.",
        ) from None
    with released(descriptor):
        yield


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
