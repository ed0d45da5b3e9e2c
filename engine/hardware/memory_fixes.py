"""Settings that need less memory, least harmful first, each with its forecast."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.records.machine.hardware import MemoryFix

WORTH = 0.01
"""Minimum saving of a proposed fix, as a share of the peak."""
LEAST_BATCH, LEAST_CONTEXT, LEAST_RANK = 128, 256, 8


class Need(NamedTuple):
    """Memory on the fullest GPU, in bytes."""

    sampling: int
    training: int
    peak: int
    room: int

    @property
    def over(self) -> int:
        """Bytes missing to fit; negative if it fits."""
        return self.peak - self.room


class Step(NamedTuple):
    words: str
    values: dict[str, Any]


Price = Callable[[ProjectConfig], Need]


def memory_fixes(config: ProjectConfig, price: Price, host: bool = False) -> tuple[MemoryFix, ...]:
    """Return changes of settings that save memory: of each kind the mildest one that makes the run
    fit, or else the one that saves most. If no single one is enough, the last entry combines all.
    `price` returns the memory that settings need and that is available. `host`: training on the
    CPU, where quantisation and vLLM do not apply."""
    before = price(config)
    found: list[MemoryFix] = []
    together: dict[str, Any] = {}
    for ladder in _ladders(config, host):
        best = _mildest(config, ladder, price, before)
        if best is not None:
            found.append(best)
            together |= best.values
    if len(found) > 1 and not any(fix.fits for fix in found):
        after = price(changed_config(config, together))
        found.append(_fix(Step("All changes", together), before, after))
    return tuple(found)


def advice(fix: MemoryFix, room: int) -> str:
    """Describe a fix, its saving, and the peak it leaves of `room` bytes of memory, as text."""
    values = ", ".join(f"{key} = {value}" for key, value in fix.values.items())
    saved, peak, all_ = (
        f"{number / 1e9:.1f}" for number in (fix.saves_bytes, fix.peak_bytes, room)
    )
    return f"{values} (saves about {saved} GB: peak {peak} of {all_} GB)"


def _mildest(
    config: ProjectConfig, ladder: Iterator[Step], price: Price, before: Need
) -> MemoryFix | None:
    best: MemoryFix | None = None
    for step in ladder:
        fix = _fix(step, before, price(changed_config(config, step.values)))
        if fix.saves_bytes < WORTH * before.peak:
            continue
        if fix.fits:
            return fix
        if best is None or fix.saves_bytes > best.saves_bytes * (1 + WORTH):
            best = fix
    return best


def _fix(step: Step, before: Need, after: Need) -> MemoryFix:
    return MemoryFix(
        words=step.words,
        values=step.values,
        saves_bytes=before.peak - after.peak,
        peak_bytes=after.peak,
        fits=after.over <= 0,
    )


def _ladders(config: ProjectConfig, host: bool) -> Iterator[Iterator[Step]]:
    """Yield the kinds of fixes. Sleep, smaller batches and recomputation only cost time; fewer
    bits, a smaller adapter and a shorter context change the result."""
    if not host:
        yield _sleeps(config)
    yield _halves(
        "train.batch_tokens", config.train.batch_tokens, LEAST_BATCH, "Batch of {:,} tokens"
    )
    yield _recompute(config)
    yield _halves("agent.concurrency", config.agent.concurrency, 1, "{:,} concurrent rollouts")
    if not host:
        yield _turns(config)
        yield _bits(config)
    yield _experts(config)
    yield _halves("model.rank", config.model.rank, LEAST_RANK, "Adapter of rank {:,}")
    yield _halves("model.max_context", config.model.max_context, LEAST_CONTEXT, "Context of {:,}")


def _sleeps(config: ProjectConfig) -> Iterator[Step]:
    if config.backend.sampler == "vllm" and config.backend.sleep in ("off", "cache"):
        yield Step("vLLM frees memory while training", {"backend.sleep": "all"})


def _recompute(config: ProjectConfig) -> Iterator[Step]:
    if not config.backend.recompute:
        yield Step("Recompute activations (backward)", {"backend.recompute": True})


def _turns(config: ProjectConfig) -> Iterator[Step]:
    if config.train.staleness:
        yield Step("Alternate sampling and training", {"train.staleness": 0})


def _experts(config: ProjectConfig) -> Iterator[Step]:
    if config.model.adapt_experts:
        yield Step("No adapter on experts", {"model.adapt_experts": False})


def _bits(config: ProjectConfig) -> Iterator[Step]:
    if config.model.adapt_experts:
        return
    fewer = {"full": ("8bit", "4bit"), "8bit": ("4bit",), "4bit": ()}[config.backend.weights]
    for bits in fewer:
        values = {"backend.weights": bits, "backend.trainer": "unsloth"}
        yield Step(f"Weights in {bits.removesuffix('bit')} bits", values)


def _halves(key: str, value: int, least: int, words: str) -> Iterator[Step]:
    while (value := value // 2) >= least:
        yield Step(words.format(value), {key: value})
