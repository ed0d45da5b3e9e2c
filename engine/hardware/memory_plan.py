"""GPU memory plan of a run, phase by phase, from the settings and the GPUs of the machine."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from engine.hardware import vram
from engine.hardware.devices import cards_of, has_own_sampler_card
from engine.hardware.flops import ModelShape
from engine.hardware.forecast import MOST_ROWS
from engine.hardware.machine import Model, counts_of, expected_work, forecast, shape_of
from engine.hardware.memory_fixes import Need, memory_fixes
from engine.protocol.config.project import ProjectConfig
from engine.protocol.records.forecast import Forecast
from engine.protocol.records.machine.hardware import Card, CardPlan, MemoryFix, MemoryPart, VramPlan

NATIVE_BFLOAT16 = (8, 0)
"""Lowest compute capability with native bfloat16."""


class Counted(NamedTuple):
    """Dimensions of a model in the precision used on a GPU."""

    shape: ModelShape
    rest: int
    """Number of weights in embeddings, head and norms."""


def preflight(
    config: ProjectConfig, model: Path, step_times_s: list[float], place: Path
) -> Forecast:
    """Forecast of a run, with the GPU memory plan if it uses GPUs. `model` is the base model's
    folder, `place` that of the runs; `step_times_s` are seconds per step of an earlier run (empty:
    estimated)."""
    made = forecast(config, model, step_times_s, place)
    return made.model_copy(update={"vram": vram_plan(config, model, cards_of(config.backend))})


def vram_plan(config: ProjectConfig, model: Model, cards: Sequence[Card]) -> VramPlan | None:
    """Memory plan of a run on these GPUs, with changes of settings as fixes if it does not fit.
    None if the memory size of no GPU is known."""
    known = [card for card in cards if card.total_bytes]
    if not known:
        return None
    made = _plan(config, model, known)
    if made.fits:
        return made
    return made.model_copy(update={"fixes": memory_fixes(config, lambda c: _need(c, model, known))})


def smaller_settings(
    config: ProjectConfig, model: Model, cards: Sequence[Card]
) -> tuple[MemoryFix, ...]:
    """Changes of settings that save memory, for a run that was planned to fit but ran out of it.
    `cards` are its GPUs; empty: it ran on the CPU."""
    known = [card for card in cards if card.total_bytes]
    if known:
        return memory_fixes(config, lambda c: _need(c, model, known))
    return memory_fixes(config, lambda c: _host_need(c, model), host=True)


def _need(config: ProjectConfig, model: Model, cards: Sequence[Card]) -> Need:
    card = _plan(config, model, cards).fullest
    return Need(card.sampling_bytes, card.training_bytes, card.peak_bytes, card.room_bytes)


def _host_need(config: ProjectConfig, model: Model) -> Need:
    """Return the need on the CPU, where all parts are in memory at once."""
    made = forecast(config, model, [], model if isinstance(model, Path) else Path.home())
    peak = made.weights_bytes + made.sampler_bytes + made.adapter_bytes + made.activations_bytes
    return Need(peak - made.activations_bytes, peak, peak, made.available_bytes)


def _plan(config: ProjectConfig, model: Model, cards: Sequence[Card]) -> VramPlan:
    """Return the plan. The first GPU samples and trains, the others train; with one more GPU than
    trainers, the last one only samples."""
    apart = has_own_sampler_card(config.backend, cards)
    sampling = len(cards) - 1 if apart else 0
    job = job_of(config, len(cards) - apart)
    counted = [_counted(config, model, card) for card in cards]
    rooms = [(card.total_bytes or 0) - (card.others_bytes or 0) for card in cards]
    if config.backend.memory_share is not None:
        share = int(config.backend.memory_share * (cards[sampling].total_bytes or 0))
        job = job._replace(share_bytes=share)
    if job.sampler == "vllm":
        job = job._replace(sleep="off" if apart else _sleep(config, counted[0], job, rooms[0]))
    jobs = [job._replace(rows=0)] * len(cards)
    jobs[sampling] = job._replace(trains=not apart)
    plans = [_priced(config, *one) for one in zip(counted, jobs, rooms, strict=True)]
    held = counted[sampling].shape.cached_token_bytes * job.context
    return VramPlan(
        cards=tuple(_card_plan(c, p) for c, p in zip(cards, plans, strict=True)),
        overlaps=job.overlaps,
        memory_share=_share(config, plans[sampling], cards[sampling])
        if job.sampler == "vllm"
        else None,
        sleep=job.sleep,
        rows=min(job.rows, plans[sampling].bytes_of(vram.CACHE) // held),
        rows_wanted=job.rows,
    )


def job_of(config: ProjectConfig, cards: int = 1) -> vram.Job:
    """Work on each of `cards` GPUs: the largest micro-batch, the longest sequence, the concurrent
    rollouts. A conversation grows by a completion per turn, at most to the context; a micro-batch
    holds `train.batch_tokens`, or one longer sequence."""
    train, backend = config.train, config.backend
    most = expected_work(config)[1]
    turns = most.prompt + config.agent.max_turns * train.max_tokens
    context = int(min(config.model.max_context, turns))
    tokens = max(context, min(train.batch_tokens, int(most.unique_tokens)))
    rows = min(config.agent.concurrency, most.attempts)
    return vram.Job(
        tokens=tokens,
        context=context,
        rows=min(rows, MOST_ROWS) if backend.sampler == "torch" else rows,
        storage=backend.weights,
        sampler=backend.sampler,
        overlaps=train.staleness > 0,
        peers=cards - 1,
    )


def _counted(config: ProjectConfig, model: Model, card: Card) -> Counted:
    precision = config.model.dtype
    if precision == "auto":
        native = card.capability is None or card.capability >= NATIVE_BFLOAT16
        precision = "bfloat16" if native else "float32"
    counts = counts_of(model)
    shape = shape_of(config, model, precision)
    return Counted(shape, counts["parameters"] - counts["linear"])


def _priced(config: ProjectConfig, counted: Counted, job: vram.Job, room: int) -> vram.Plan:
    recipe = vram.recipe_of(counted.shape, job.storage, config.backend.recompute)
    return vram.plan(counted.shape, counted.rest, job, recipe, room)


def _sleep(config: ProjectConfig, counted: Counted, job: vram.Job, room: int) -> vram.Sleep:
    """Return the lightest sleep level that fits and leaves as much KV cache as the deepest."""
    if job.overlaps:
        return "off"
    if config.backend.sleep != "auto":
        return config.backend.sleep
    most = _priced(config, counted, job._replace(sleep="all"), room).bytes_of(vram.CACHE)
    levels: tuple[vram.Sleep, ...] = ("off", "cache")
    for level in levels:
        made = _priced(config, counted, job._replace(sleep=level), room)
        if made.peak <= room and made.bytes_of(vram.CACHE) >= most:
            return level
    return "all"


def _share(config: ProjectConfig, plan: vram.Plan, card: Card) -> float:
    """Return the share of its GPU that vLLM reserves: weights, cache, activations and graphs."""
    if config.backend.memory_share is not None:
        return config.backend.memory_share
    taken = plan.bytes_of(*vram.OF_VLLM) / (card.total_bytes or 1)
    return min(0.99, ceil(100 * taken) / 100)


def _card_plan(card: Card, plan: vram.Plan) -> CardPlan:
    return CardPlan(
        index=card.index,
        name=card.name,
        total_bytes=card.total_bytes or 0,
        others_bytes=card.others_bytes or 0,
        parts=tuple(
            MemoryPart(name=p.name, sampling_bytes=p.sampling, training_bytes=p.training)
            for p in plan.parts
        ),
        sampling_bytes=plan.sampling,
        training_bytes=plan.training,
        peak_bytes=plan.peak,
    )
