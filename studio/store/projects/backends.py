"""What each setting of [backend] means on this engine, and what stands against it. Pure.

In: the project's settings, and what the engine has (None until it has said so). Out: a note for
each setting, ready to be shown beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.backends import BackendFacts, Provision, ignored
from studio.text import formatting

BITS = {"8bit": "8 bits", "4bit": "4 bits"}
SLEEPS = {"off": "vLLM keeps all", "cache": "its cache sleeps", "all": "vLLM sleeps"}
SETTINGS = ("Open Settings", "go.settings")


@dataclass(frozen=True)
class Note:
    """A sentence beside a setting; `short` is its line in the preflight, where it matters there."""

    words: str
    tone: str = "faint"
    short: str = ""
    link: tuple[str, str] = ("", "")
    """Words, and the action that they trigger."""

    @property
    def matters(self) -> bool:
        return bool(self.short)


def notes(config: ProjectConfig, facts: BackendFacts | None) -> dict[str, Note]:
    """One note for each setting, by its key."""
    found = {
        "backend.sampler": _sampler(config, facts),
        "backend.trainer": _trainer(config, facts),
        "backend.weights": _weights(config, facts),
        "backend.recompute": Note("A third slower, a fraction of the memory, the same result."),
        "backend.processes": _processes(config, facts),
        "backend.memory_share": Note(
            "Of the card’s memory, between 0 and 1. Empty: worked out from the forecast."
        ),
        "backend.sleep": Note("What the vLLM server frees for the trainer, and takes back after."),
        "train.staleness": _staleness(config),
        "backend.share_card": Note("Else a run is refused whose memory other programs hold."),
    }
    for key, why in ignored(config, facts.cards if facts else None).items():
        words = f"No effect: {why}."
        found[key] = Note(words, "warn", f"{SHORT[key]} has no effect")
    return found


SHORT = {
    "backend.memory_share": "vLLM’s share of the card",
    "backend.sleep": "What vLLM gives back",
    "train.staleness": "Staleness",
    "backend.share_card": "Sharing the card",
}


def summary(config: ProjectConfig) -> str:
    """The settings that are folded away, in a line."""
    backend, words = config.backend, []
    words.append(formatting.plural(backend.processes, "trainer"))
    if backend.recompute:
        words.append("layers computed again")
    if backend.memory_share is not None:
        words.append(f"{formatting.percent(backend.memory_share)} of the card for vLLM")
    if backend.sleep != "auto":
        words.append(
            {"off": "no sleep", "cache": "cache sleeps", "all": "all sleeps"}[backend.sleep]
        )
    words.append(f"staleness {config.train.staleness}")
    if backend.share_card:
        words.append("starts beside others")
    return " · ".join(words)


def checks(found: dict[str, Note]) -> list[tuple[str, str]]:
    """Lines of the preflight, the worst first."""
    states = {"bad": "bad", "warn": "warn", "info": "open"}
    lines = [(states[n.tone], n.short) for n in found.values() if n.matters]
    return sorted(lines, key=lambda line: ("bad", "warn", "open").index(line[0]))


def _sampler(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    if config.backend.sampler == "torch":
        return Note("Samples in the trainer’s own process, in turn with it. Runs anywhere.")
    usual = Note("A server beside the trainer, many times faster on a card. Proven at each update.")
    if facts is None:
        return usual
    if facts.vllm.state != "ready":
        return _with_card(_lacking("vLLM", facts.vllm, facts), facts)
    if facts.cards == 0 and config.model.dtype == "auto":
        return _with_card(
            replace(usual, words="On the processor sampler and trainer both compute in float32."),
            facts,
        )
    return _with_card(usual, facts)


def _trainer(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    if config.backend.trainer == "torch":
        return Note("Our own trainer on PyTorch. Runs anywhere.")
    usual = Note("Loads models in 8 or 4 bits, and trains them with its own kernels on a card.")
    if facts is None:
        return usual
    if facts.unsloth.state != "ready":
        usual = _lacking("Unsloth", facts.unsloth, facts)
    return usual if config.backend.sampler == "vllm" else _with_card(usual, facts)


def _lacking(name: str, provision: Provision, facts: BackendFacts) -> Note:
    if provision.state == "comes":
        words = (
            f"{name} is installed by itself with the first run: "
            f"{formatting.size(provision.download_bytes)} to download, "
            f"{formatting.size(provision.bytes)} on disk."
        )
        return Note(words, "info", f"{name} is installed with the first run")
    short = f"{name} is missing in this engine"
    if facts.cards:
        words = f"{provision.why} Install the GPU engine, which has it."
        return Note(words, "bad", short, SETTINGS)
    return Note(provision.why, "bad", short)


def _with_card(note: Note, facts: BackendFacts) -> Note:
    """… where the machine has a card that this engine cannot use."""
    if not facts.idle_cards:
        return note
    words = f"{note.words} Only the GPU engine uses your graphics card."
    return replace(
        note, words=words, tone="info" if note.tone == "faint" else note.tone, link=SETTINGS
    )


def _weights(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    bits = BITS.get(config.backend.weights)
    if bits is None:
        return Note(f"Stored as they compute: {_precision(config)}.")
    if facts is not None and not facts.cards:
        words = f"Weights in {bits} need an NVIDIA card, and this engine computes on the processor."
        link = SETTINGS if facts.idle_cards else ("", "")
        return Note(words, "bad", f"Weights in {bits} need a card", link)
    share = "half" if config.backend.weights == "8bit" else "a quarter"
    return Note(f"About {share} of the memory of 16 bits. The adapter itself stays as it is.")


def _precision(config: ProjectConfig) -> str:
    chosen = config.model.dtype
    return "bfloat16 where the machine has it, else float32" if chosen == "auto" else chosen


def _processes(config: ProjectConfig, facts: BackendFacts | None) -> Note:
    wanted = config.backend.processes
    if facts is None or (wanted == 1 and facts.cards <= 1):
        return Note("Each takes a part of every batch, on a card of its own.")
    if not facts.cards:
        return Note("Without a card they share the processor.")
    cards = formatting.plural(facts.cards, "card")
    if wanted > facts.cards:
        most = str(facts.cards) + (" or fewer" if facts.cards > 1 else "")
        words = f"This engine sees {cards}: set it to {most}."
        return Note(words, "bad", f"{wanted} trainers, {cards}")
    return Note(" ".join(_seats(config, facts.cards)))


def _seats(config: ProjectConfig, cards: int) -> Iterator[str]:
    wanted = config.backend.processes
    yield f"{wanted} of {formatting.plural(cards, 'card')}."
    if config.backend.sampler == "vllm":
        yield (
            "One more card is left to vLLM alone."
            if cards > wanted
            else "vLLM shares the first one."
        )


def _staleness(config: ProjectConfig) -> Note:
    behind = config.train.staleness
    if not behind:
        return Note("Sampling and training take turns.")
    most = formatting.plural(behind, "update")
    return Note(f"Sampled while the trainer works, by weights at most {most} older.")
