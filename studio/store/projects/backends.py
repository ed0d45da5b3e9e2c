"""Explanation of each [backend] setting on this engine, with warnings. Free of I/O.

Input: the project's settings with the chosen cluster, the cluster and the engine's backends (None
until loaded). Output: a note for each setting."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.machine.backends import (
    DECIDED_BY_CLUSTER,
    BackendFacts,
    Provision,
    ignored,
)
from engine.protocol.requests.clusters import ClusterView
from studio.store.servers.cluster_rows import lacking_words, sending_words
from studio.text import formatting

BITS = {"8bit": "8 bits", "4bit": "4 bits"}
SETTINGS = ("Open Settings", "engines.open")
CLUSTERS = ("Open Settings", "clusters.open")


@dataclass(frozen=True)
class Note:
    """Note beside a setting; `short` is its line in the preflight check."""

    words: str
    tone: str = "faint"
    short: str = ""
    link: tuple[str, str] = ("", "")
    """Text and action of a link."""

    @property
    def matters(self) -> bool:
        """Return whether the note is shown in the preflight check."""
        return bool(self.short)


def notes(
    config: ProjectConfig, facts: BackendFacts | None, cluster: ClusterView | None = None
) -> dict[str, Note]:
    """Return setting key → note for all backend settings. `facts` are the capabilities of the
    engine (None: not loaded yet), `cluster` is the one that `config` selects (None: unknown or
    none)."""
    notes_by_key = _cluster_notes(config, cluster) or _notes_here(config, facts)
    for key, why in ignored(config, facts.cards if facts else None).items():
        words = f"No effect: {why}."
        notes_by_key[key] = Note(words, "warn", f"{SHORT[key]} has no effect")
    return notes_by_key


def _cluster_notes(config: ProjectConfig, cluster: ClusterView | None) -> dict[str, Note]:
    """Return the notes of a run on a cluster; empty for a run on another machine."""
    name = config.backend.cluster
    if not name:
        return {}
    words, short = sending_words(cluster, name, config)
    if cluster is None:
        note = Note(words, "bad", short, CLUSTERS)
    elif lacking_words(cluster):
        note = Note(words, "warn", short, CLUSTERS)
    else:
        note = Note(words, "info", short)
    decided = {f"backend.{key}": Note(f"{name} decides.") for key in DECIDED_BY_CLUSTER}
    return {"backend.cluster": note, **decided, "train.staleness": _staleness(config)}


def _notes_here(config: ProjectConfig, facts: BackendFacts | None) -> dict[str, Note]:
    return {
        "backend.cluster": Note("The machine chosen in the header samples and trains."),
        "backend.sampler": _sampler(config, facts),
        "backend.trainer": _trainer(config, facts),
        "backend.weights": _weights(config, facts),
        "backend.recompute": Note("A third slower, but activations use a fraction of the memory."),
        "backend.processes": _processes(config, facts),
        "backend.memory_share": Note(
            "Share of GPU memory, 0 to 1. Empty: computed from the memory forecast."
        ),
        "backend.sleep": Note("GPU memory that vLLM frees while the policy trains."),
        "train.staleness": _staleness(config),
        "backend.share_card": Note(
            "Off: a run is refused if other programs use memory that the run needs."
        ),
    }


SHORT = {
    "backend.sampler": "Sampler",
    "backend.trainer": "Trainer",
    "backend.weights": "Weight precision",
    "backend.recompute": "Activation checkpointing",
    "backend.processes": "Number of trainers",
    "backend.memory_share": "vLLM’s share of GPU memory",
    "backend.sleep": "vLLM’s sleep mode",
    "train.staleness": "Staleness",
    "backend.share_card": "Sharing the GPU",
}


def summary(config: ProjectConfig) -> str:
    """Summarize the backend settings in one line, for the collapsed section."""
    backend, words = config.backend, []
    words.append(formatting.plural(backend.processes, "trainer"))
    if backend.recompute:
        words.append("gradient checkpointing")
    if backend.memory_share is not None:
        words.append(f"{formatting.percent(backend.memory_share)} of GPU memory for vLLM")
    if backend.sleep != "auto":
        words.append(
            {
                "off": "vLLM stays in memory",
                "cache": "vLLM frees its cache",
                "all": "vLLM frees all",
            }[backend.sleep]
        )
    words.append(f"staleness {config.train.staleness}")
    if backend.share_card:
        words.append("shares the GPU")
    return " · ".join(words)


def checks(notes_by_key: dict[str, Note]) -> list[tuple[str, str]]:
    """Return (state, text) lines for the preflight check, most severe first, from key → note."""
    states = {"bad": "bad", "warn": "warn", "info": "open"}
    lines = [(states[n.tone], n.short) for n in notes_by_key.values() if n.matters]
    return sorted(lines, key=lambda line: ("bad", "warn", "open").index(line[0]))


def _sampler(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    if config.backend.sampler == "torch":
        return Note("Samples in the trainer’s process, alternating with training. Runs anywhere.")
    usual = Note(
        "Separate server, many times faster on a GPU. Log-probs are checked at each update."
    )
    if facts is None:
        return usual
    if facts.vllm.state != "ready":
        return _with_card(_unavailable("vLLM", facts.vllm, facts), facts)
    if facts.cards == 0 and config.model.dtype == "auto":
        return _with_card(
            replace(usual, words="On the CPU, sampler and trainer both compute in float32."), facts
        )
    return _with_card(usual, facts)


def _trainer(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    if config.backend.trainer == "torch":
        return Note("Built-in PyTorch trainer. Runs anywhere.")
    usual = Note("Loads models in 8 or 4 bits, and trains them with its own kernels on a GPU.")
    if facts is None:
        return usual
    if facts.unsloth.state != "ready":
        usual = _unavailable("Unsloth", facts.unsloth, facts)
    return usual if config.backend.sampler == "vllm" else _with_card(usual, facts)


def _unavailable(name: str, provision: Provision, facts: BackendFacts) -> Note:
    if provision.state == "comes":
        words = (
            f"{name} is installed automatically with the first run: "
            f"{formatting.size(provision.download_bytes)} to download, "
            f"{formatting.size(provision.bytes)} on disk."
        )
        return Note(words, "info", f"{name} is installed with the first run")
    short = f"{name} is not installed"
    if facts.cards:
        words = f"{provision.why} Install the GPU engine, which includes it."
        return Note(words, "bad", short, SETTINGS)
    return Note(provision.why, "bad", short)


def _with_card(note: Note, facts: BackendFacts) -> Note:
    """Return the note, extended if the machine has a GPU that this engine cannot use."""
    if not facts.idle_cards:
        return note
    words = f"{note.words} Only the GPU engine uses your GPU."
    return replace(
        note, words=words, tone="info" if note.tone == "faint" else note.tone, link=SETTINGS
    )


def _weights(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    bits = BITS.get(config.backend.weights)
    if bits is None:
        return Note(f"Data type of the computation: {_precision(config)}.")
    if facts is not None and not facts.cards:
        words = f"Weights in {bits} need an NVIDIA GPU, but this engine computes on the CPU."
        link = SETTINGS if facts.idle_cards else ("", "")
        return Note(words, "bad", f"Weights in {bits} need a GPU", link)
    share = "half" if config.backend.weights == "8bit" else "a quarter"
    return Note(f"Needs {share} of the memory of 16-bit weights. The adapter is not quantized.")


def _precision(config: ProjectConfig) -> str:
    chosen = config.model.dtype
    return (
        "bfloat16 where the hardware supports it, otherwise float32" if chosen == "auto" else chosen
    )


def _processes(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    processes = config.backend.processes
    if facts is None or (processes == 1 and facts.cards <= 1):
        return Note("Each process trains a part of every batch on its own GPU.")
    if not facts.cards:
        return Note("Without a GPU, the processes share the CPU.")
    cards = formatting.plural(facts.cards, "GPU")
    if processes > facts.cards:
        most = str(facts.cards) + (" or fewer" if facts.cards > 1 else "")
        words = f"This engine has {cards}. Set processes to {most}."
        return Note(words, "bad", f"{processes} trainers, {cards}")
    return Note(" ".join(_card_notes(config, facts.cards)))


def _card_notes(config: ProjectConfig, cards: int) -> Iterator[str]:
    processes = config.backend.processes
    yield f"Uses {processes} of {formatting.plural(cards, 'GPU')}."
    if config.backend.sampler == "vllm":
        yield ("vLLM has its own GPU." if cards > processes else "vLLM shares the first GPU.")


def _staleness(config: ProjectConfig) -> Note:
    staleness = config.train.staleness
    if not staleness:
        return Note("Sampling and training take turns.")
    most = formatting.plural(staleness, "update")
    return Note(f"Sampling continues during training, with weights at most {most} old.")
