"""GPU memory of a run: check before the start, and advice after it ran out."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import psutil

from engine.hardware.devices import cards_of
from engine.hardware.memory_fixes import advice
from engine.hardware.memory_plan import smaller_settings, vram_plan
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import AtelierError, Problem, Refused
from engine.protocol.records.machine.hardware import Card, CardProcess

OUT_OF_MEMORY = "policy.out_of_memory"
LOOKS, PAUSE_S = 3, 1.0
"""Number of checks and seconds between them: memory of an ended process is freed with a delay."""


async def require_gpu_memory(config: ProjectConfig, model: Path, cards: Sequence[Card]) -> None:
    """Raise Refused if a run of the model in folder `model` would fit on `cards` only without the
    memory that other programs use. Looks several times, since memory may be freed."""
    if config.backend.share_card or not cards:
        return
    for _ in range(LOOKS - 1):
        if _held(config, model, cards) is None:
            return
        await asyncio.sleep(PAUSE_S)
        cards = await asyncio.to_thread(cards_of, config.backend)
    if held := _held(config, model, cards):
        raise held


def _held(config: ProjectConfig, model: Path, cards: Sequence[Card]) -> Refused | None:
    now, alone = (vram_plan(config, model, seen) for seen in (cards, [_emptied(c) for c in cards]))
    if now is None or alone is None or now.fits or not alone.fits:
        return None
    plan = now.fullest
    card = next(card for card in cards if card.index == plan.index)
    if not card.strangers:
        return None
    held, total, need = (
        f"{number / 1e9:.1f}" for number in (plan.others_bytes, plan.total_bytes, plan.peak_bytes)
    )
    return Refused.of(
        "run.card_held",
        f"{_named(card.strangers)} on GPU {card.index} ({card.name}): {held} of {total} GB are "
        f"taken, and this run needs about {need} GB.",
        "End that program, choose another GPU with CUDA_VISIBLE_DEVICES, make the run smaller, or "
        "set backend.share_card to start anyway.",
    )


def _named(strangers: Sequence[CardProcess]) -> str:
    """Names of other GPU processes, such as `python (process 12) and 2 more hold memory`."""
    first = strangers[0]
    name = f"{first.name or 'Another program'} (process {first.pid})"
    others = len(strangers) - 1
    return f"{name} and {others} more hold memory" if others else f"{name} holds memory"


def _emptied(card: Card) -> Card:
    return card.model_copy(update={"used_bytes": 0, "processes": ()})


def with_memory_advice(problem: Problem, config: ProjectConfig, model: Path) -> Problem:
    """Add advice to an out-of-memory problem: the least invasive setting that saves enough memory.
    If the model's files are unreadable, the hint of the problem stays."""
    if problem.code != OUT_OF_MEMORY:
        return problem
    try:
        return problem.model_copy(update={"hint": _hint(config, model)})
    except (OSError, ValueError, KeyError, AtelierError):
        return problem


def _hint(config: ProjectConfig, model: Path) -> str:
    cards = cards_of(config.backend)
    fixes = smaller_settings(config, model, cards)
    best = next((fix for fix in fixes if fix.fits), fixes[-1] if fixes else None)
    if best is None:
        return "Use a smaller model."
    plan = vram_plan(config, model, cards)
    room = plan.fullest.room_bytes if plan else psutil.virtual_memory().total
    return f"Start again from the last checkpoint with {advice(best, room)}."
