"""Data-parallel ranks of one policy: each trains on a share of a batch, all take the same step.

Gradients are summed over the ranks before the update (every loss is already divided by the
normaliser of the whole step), so adapters stay equal and nothing else is sent. The variables are
those of torchrun. Ranks meet through a file; only the connections between them listen, on loopback.
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
"""Timeout for the slowest share of a batch; the engine detects a dead process much earlier."""


class Ranks:
    """Group of ranks; create it with `join`. A single rank needs no communication."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self._numbers = distributed.new_group(backend="gloo") if count > 1 else None

    @classmethod
    def join(cls) -> "Ranks":
        """Join the process group that the environment variables WORLD_SIZE and RANK describe,
        waiting until all ranks have joined; a single rank without them."""
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
        """Sum gradients over all ranks in place; a missing gradient counts as zeros."""
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
        """Values of all ranks in their order at rank 0; an empty list elsewhere."""
        if self.count == 1:
            return [value]
        found: list[T] | None = [value] * self.count if self.rank == 0 else None
        distributed.gather_object(value, found, dst=0, group=self._numbers)
        return found or []
