"""Devices of a run: the CPU, or GPUs of the machine."""

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import platformdirs

from engine.hardware.gpus import read_gpus
from engine.protocol.config.project import BackendConfig
from engine.protocol.records.machine.hardware import Card

BY_BUS = "PCI_BUS_ID"
GPU_ENVIRONMENT = "engine-gpu"


class TorchBuild(NamedTuple):
    """Target (CPU or CUDA version) of the installed torch."""

    version: str
    cuda: str | None
    """CUDA version; None for a CPU build."""


def torch_build() -> TorchBuild | None:
    """Build of the installed torch from its files, without importing it; None if missing."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    return read_build((Path(found.origin).parent / "version.py").read_text())


def read_build(text: str) -> TorchBuild:
    """Parse torch's version.py."""
    version = re.search(r"^__version__ = '([^']*)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda: Optional\[str\] = '([^']*)'", text, re.MULTILINE)
    return TorchBuild(version[1] if version else "", cuda[1] if cuda else None)


def gpu_build() -> TorchBuild | None:
    """Return the torch build of the GPU engine in the user's cache; None if not installed."""
    home = Path(platformdirs.user_cache_dir("atelier")) / "environments"
    for ready in sorted(home.glob(f"{GPU_ENVIRONMENT}-*/ready")):
        for file in ready.parent.glob("lib/python*/site-packages/torch/version.py"):
            return read_build(file.read_text())
    return None


def computes_on_cards() -> bool:
    """Whether this engine's torch was built for CUDA."""
    build = torch_build()
    return build is not None and bool(build.cuda)


def cards_of(backend: BackendConfig) -> tuple[Card, ...]:
    """GPUs of this machine that a run with these settings computes on; empty for the CPU or a
    cluster."""
    if backend.cluster or not computes_on_cards():
        return ()
    wanted = backend.processes + (backend.sampler == "vllm")
    return chosen_gpus(read_gpus().cards, wanted, os.environ)


def has_own_sampler_card(backend: BackendConfig, cards: Sequence[Card]) -> bool:
    """Whether the last GPU of a run is for vLLM only: there is one more than trainers."""
    return backend.sampler == "vllm" and len(cards) > backend.processes


def chosen_gpus(
    cards: Sequence[Card], count: int, environment: Mapping[str, str]
) -> tuple[Card, ...]:
    """Return the first `count` GPUs that CUDA shows. CUDA orders GPUs by speed unless
    CUDA_DEVICE_ORDER is PCI_BUS_ID, while the driver orders them by bus. If models differ and that
    setting is missing, all possible GPUs are returned."""
    shown = visible(cards, environment)
    mixed = len({card.name for card in cards}) > 1
    if mixed and environment.get("CUDA_DEVICE_ORDER") != BY_BUS and not _named(environment):
        return shown
    return shown[:count]


def visible(cards: Sequence[Card], environment: Mapping[str, str]) -> tuple[Card, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects, in its order. CUDA stops at the first
    unknown entry."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return tuple(cards)
    mixed = len({card.name for card in cards}) > 1
    if mixed and environment.get("CUDA_DEVICE_ORDER") != BY_BUS and not _named(environment):
        return tuple(cards) if value.strip() not in ("", "-1") else ()
    seen: list[Card] = []
    for name in value.split(","):
        card = _card(cards, name.strip())
        if card is None or card in seen:
            break
        seen.append(card)
    return tuple(seen)


def _named(environment: Mapping[str, str]) -> bool:
    """Whether GPUs are selected by UUID, which is independent of the order."""
    return environment.get("CUDA_VISIBLE_DEVICES", "").strip().startswith("GPU-")


def _card(cards: Sequence[Card], name: str) -> Card | None:
    if name.isdecimal():
        return next((card for card in cards if card.index == int(name)), None)
    fitting = [card for card in cards if name and card.uuid.startswith(name)]
    return fitting[0] if len(fitting) == 1 else None
