"""Sampling for models whose layers keep a state that cannot branch (linear attention): every token
from the whole past of its sequence, which goes by itself. Slow, and right.
"""

import torch
from torch import Tensor

from engine.policy.torch.sampling.kv_cache import ExtensionPlan
from engine.policy.torch.sampling.sampler import MAX_ROWS, Row, Sampler
from engine.policy.torch.training.prefix_tree import TreePlan, grow


class AloneSampler(Sampler):
    """No cache: a row's next token comes from a pass over all that it has."""

    def _admit(self) -> None:
        room = MAX_ROWS - len(self._running)
        joining, self._waiting = self._waiting[:room], self._waiting[room:]
        for row in joining:
            row.pending = list(row.request.tokens)
            self.computed_tokens += len(row.pending)
        self._running += joining

    def _forward(self) -> tuple[list[Row], Tensor, ExtensionPlan | None]:
        lasts = [
            self._model.hidden(TreePlan(grow([row.pending]), self._model.device))[-1]
            for row in self._running
        ]
        return list(self._running), self._model.logits(torch.stack(lasts)), None

    def _took(self, row: Row, token: int) -> None:
        row.pending.append(token)

    def _leave(self, row: Row) -> None:
        self._running.remove(row)
