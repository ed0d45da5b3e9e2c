"""What an engine has for a project's [backend], and which of its settings have no effect."""

from typing import Literal

from engine.protocol.base import Value
from engine.protocol.config.project import ProjectConfig


class Provision(Value):
    """How an engine comes by a program that samples or trains."""

    state: Literal["ready", "comes", "missing"]
    """`comes`: it is installed beside the engine by itself, before the first step that needs it."""
    bytes: int = 0
    """On disk, about, where it comes."""
    download_bytes: int = 0
    why: str = ""
    """What stands against it, in a sentence, where it is missing."""


class BackendFacts(Value):
    """An engine, as a project's [backend] finds it."""

    cards: int
    """Graphics cards that it computes on; 0: on the processor."""
    idle_cards: int = 0
    """Cards of the machine that it cannot compute on, for its torch knows only the processor."""
    vllm: Provision
    unsloth: Provision


def ignored(config: ProjectConfig, cards: int | None = None) -> dict[str, str]:
    """Settings that are set and have no effect, by key, with the reason. `cards` as in
    BackendFacts; None where nobody knows."""
    backend, found = config.backend, dict[str, str]()
    no_card = "the engine computes on the processor"
    if config.train.staleness and backend.sampler == "torch":
        found["train.staleness"] = (
            "one process samples and trains in turn, so nothing overlaps; a vLLM server can "
            "sample meanwhile"
        )
    for key, is_set in (
        ("backend.memory_share", backend.memory_share is not None),
        ("backend.sleep", backend.sleep != "auto"),
    ):
        if is_set and backend.sampler == "torch":
            found[key] = "it is about the vLLM server, and backend.sampler is torch"
        elif is_set and cards == 0:
            found[key] = no_card
    if backend.sleep in ("cache", "all") and backend.sampler == "vllm" and cards != 0:
        if config.train.staleness:
            found["backend.sleep"] = "with train.staleness vLLM samples while the trainer works"
        elif cards is not None and cards > backend.processes:
            found["backend.sleep"] = "vLLM has a card of its own"
    if backend.share_card and cards == 0:
        found["backend.share_card"] = no_card
    return found
