"""The other trainers of one policy: each has its share of a batch, all take the same step.

Gradients are summed over them before the update (every loss is divided by the normaliser of the
whole step already), so all keep the same adapter and nothing else need be sent. The variables are
those of torchrun; the meeting place is a file, so nothing listens but what connects them, on
loopback.
"""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed, nn

T = TypeVar("T")
MEETING = "ATELIER_RENDEZVOUS"
PATIENCE = timedelta(minutes=30)
"""The slowest share of a batch; one that died is noticed by the engine long before."""


class Ranks:
    """Make it with `join`; alone, everything is as if there were no others."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self._numbers = distributed.new_group(backend="gloo") if count > 1 else None

    @classmethod
    def join(cls) -> "Ranks":
        """Waits for the others, where there are any."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        rank = int(os.environ.get("RANK", "0"))
        if count > 1:
            distributed.init_process_group(
                "nccl" if torch.cuda.is_available() else "gloo",
                init_method=f"file://{os.environ[MEETING]}",
                rank=rank,
                world_size=count,
                timeout=PATIENCE,
            )
        return cls(rank, count)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """In place, over all ranks; a missing gradient is one of zeros."""
        if self.count == 1:
            return
        own = list(parameters)
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        flat = torch.cat([slope.flatten() for slope in slopes])
        distributed.all_reduce(flat)
        parts = flat.split([slope.numel() for slope in slopes])
        for parameter, part in zip(own, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def gathered(self, value: T) -> list[T]:
        """Everybody's, in the order of the ranks, at rank 0; elsewhere nothing."""
        if self.count == 1:
            return [value]
        found: list[T] | None = [value] * self.count if self.rank == 0 else None
        distributed.gather_object(value, found, dst=0, group=self._numbers)
        return found or []
