"""Schedule of an SFT run: number of updates, batch of each, learning rate. Pure."""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeVar

from engine.runtime.seeds import derive

T = TypeVar("T")
Schedule = Literal["linear", "cosine", "constant"]


def updates_of(examples: int, batch_size: int, epochs: int) -> int:
    """Number of updates for so many examples; the last of an epoch may have fewer examples."""
    return math.ceil(examples / batch_size) * epochs


def batch_at(examples: Sequence[T], update: int, batch_size: int, seed: int, name: str) -> list[T]:
    """Return the examples of an update, counted from 1. Each epoch has its own order, shuffled by
    `seed` and `name` (of the purpose), so an interrupted run continues with the same one."""
    each = math.ceil(len(examples) / batch_size)
    epoch, place = divmod(update - 1, each)
    order = _order(len(examples), derive(seed, name, epoch))
    return [examples[n] for n in order[place * batch_size : (place + 1) * batch_size]]


def rate_at(update: int, updates: int, peak: float, schedule: Schedule, warmup: float) -> float:
    """Return the learning rate of an update, counted from 1: linear warm-up over ⌈warmup · updates⌉
    updates up to `peak`, then a decay that would reach 0 after the last update. This is
    `get_scheduler` of transformers, one update later, so that the first rate is not 0."""
    rising = math.ceil(warmup * updates)
    if update <= rising:
        return peak * update / rising
    gone = (update - rising) / (updates - rising + 1)
    if schedule == "linear":
        return peak * (1 - gone)
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * gone))
    return peak


def exceeds_patience(losses: Sequence[float], patience: int | None) -> bool:
    """Whether none of the last `patience` losses is lower than the lowest one before them; False
    for `patience` None, or if there are no more than `patience` losses."""
    if patience is None or not losses:
        return False
    best = min(range(len(losses)), key=lambda n: losses[n])
    return len(losses) - 1 - best >= patience


@lru_cache(maxsize=2)
def _order(count: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(count), count)
