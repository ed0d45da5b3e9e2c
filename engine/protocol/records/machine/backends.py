"""Backends available on an engine for a project's [backend], and settings that have no effect
there."""

from typing import Literal

from engine.protocol.base import Value
from engine.protocol.config.project import BackendConfig, ProjectConfig

DECIDED_BY_CLUSTER = (
    *("sampler", "trainer", "weights", "recompute", "processes"),
    *("memory_share", "sleep", "share_card"),
)
"""Settings of [backend] without effect on a run that a cluster samples and trains."""


class Provision(Value):
    """Availability of a backend."""

    state: Literal["ready", "comes", "missing"]
    """`comes`: installed automatically before the first step that needs it."""
    bytes: int = 0
    """Approximate size on disk in bytes, if it has to be installed."""
    download_bytes: int = 0
    why: str = ""
    """Why the backend is missing, in one sentence."""


class BackendFacts(Value):
    """Backends and graphics cards of an engine, as relevant for a project's [backend]."""

    cards: int
    """Graphics cards used for computation; 0 computes on the CPU."""
    idle_cards: int = 0
    """Graphics cards of the machine that are not used because the engine's torch is CPU-only."""
    vllm: Provision
    unsloth: Provision


def ignored(config: ProjectConfig, cards: int | None = None) -> dict[str, str]:
    """Return dotted key → reason of settings without effect. `cards` is the number of graphics
    cards used for computation; None: unknown."""
    backend, reasons = config.backend, dict[str, str]()
    if backend.cluster:
        return {
            f"backend.{name}": f"the server of {backend.cluster} decides"
            for name in DECIDED_BY_CLUSTER
            if getattr(backend, name) != BackendConfig.model_fields[name].default
        }
    no_card = "the engine computes on the CPU"
    if config.train.staleness and backend.sampler == "torch":
        reasons["train.staleness"] = (
            "the torch sampler and the trainer share a process and take turns; only vLLM samples "
            "during training"
        )
    for key, is_set in (
        ("backend.memory_share", backend.memory_share is not None),
        ("backend.sleep", backend.sleep != "auto"),
    ):
        if is_set and backend.sampler == "torch":
            reasons[key] = "it applies only to vLLM, but backend.sampler is torch"
        elif is_set and cards == 0:
            reasons[key] = no_card
    if backend.sleep in ("cache", "all") and backend.sampler == "vllm" and cards != 0:
        if config.train.staleness:
            reasons["backend.sleep"] = (
                "with train.staleness above 0, vLLM samples while the policy trains"
            )
        elif cards is not None and cards > backend.processes:
            reasons["backend.sleep"] = "vLLM has its own GPU"
    if backend.share_card and cards == 0:
        reasons["backend.share_card"] = no_card
    return reasons
