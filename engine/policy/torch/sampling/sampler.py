"""Continuous batching with exact token ids and log-probabilities.

Every step runs one forward pass: one more token of every running sequence and the prompts of those
that join. Keys and values are kept after a sequence ends, so the next turn of a conversation
computes only new tokens, and siblings compute their prompt once. Finished rows leave at once; an
agent that waits for a tool delays no other. Every request has its own random stream, independent of
the batch: in float32 its tokens are the same alone and in any batch (except for ties of logits
within rounding); bfloat16 rounds differently in other batches.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.policy.base import SampledToken, SampleRequest
from engine.policy.prefix import shared
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.kv_cache import Extension, ExtensionPlan, KeyValueCache, Slot
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from engine.policy.torch.utilization import SampleEffort

MAX_ROWS = 64
MOST_SLOTS = 128
PREFILL_TOKENS = 2048
"""Maximum number of prompt tokens per forward pass; at least one prompt joins, however long."""
WORTH_WAITING = 16
"""Minimum number of tokens shared with a prompt that is being computed for which another prompt
waits one step, to copy their keys and values."""

Deliver = Callable[[int, SampledToken, str | None], None]
"""Callback (request number, token, finish reason or None)."""


@dataclass
class Row:
    number: int
    request: SampleRequest
    stops: frozenset[int]
    generator: torch.Generator = field(init=False)
    slot: Slot | None = None
    pending: list[int] = field(default_factory=list)
    """Input tokens of the next forward pass."""
    produced: int = 0

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.request.seed)


class Sampler:
    """Sampler: submit requests, call `step` while `busy`, receive tokens through `deliver`."""

    def __init__(
        self,
        model: LoraModel,
        eos_tokens: Iterable[int],
        deliver: Deliver,
        budget_tokens: int = 65_536,
    ) -> None:
        self._model = model
        self._eos = frozenset(eos_tokens)
        self._deliver = deliver
        self._cache = KeyValueCache(MOST_SLOTS, budget_tokens)
        self._waiting: list[Row] = []
        self._running: list[Row] = []
        self.effort = SampleEffort(model.shape)
        self.computed_tokens = 0
        """Prompt tokens that were computed."""
        self.reused_tokens = 0
        """Prompt tokens whose keys and values were cached."""

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def numbers(self) -> list[int]:
        """Numbers (ids) of the waiting and running requests."""
        return [row.number for row in (*self._waiting, *self._running)]

    def add(self, number: int, request: SampleRequest) -> None:
        eos: frozenset[int] = frozenset() if request.ignore_eos else self._eos
        stops = eos | frozenset(request.stop_tokens)
        self._waiting.append(Row(number, request, stops))

    def cancel(self, number: int) -> None:
        self._waiting = [row for row in self._waiting if row.number != number]
        for row in [row for row in self._running if row.number == number]:
            self._leave(row)

    def forget(self) -> None:
        """Invalidate the cache after the weights have changed."""
        self._cache.forget()

    @torch.inference_mode()
    def step(self) -> None:
        """Start waiting requests if there is room, then sample and deliver one token for every
        running request. Requests that reach a stop token or their token limit end."""
        start_s = time.perf_counter()
        self._admit()
        rows, logits_BV, plan = self._forward()
        drawn = draw(logits_BV, rows)
        if plan:
            spans = [(e.start, e.start + len(e.tokens)) for e in plan.order]
            seconds = time.perf_counter() - start_s
            self.effort.ran(spans, plan.padded_keys, self._model.limits, seconds)
        for row, token in zip(rows, drawn, strict=True):
            self._took(row, token.token)
            row.produced += 1
            stopped = token.token in row.stops
            full = row.produced >= row.request.max_tokens
            if stopped or full:
                self._leave(row)
            self._deliver(row.number, token, "stop" if stopped else "length" if full else None)

    def _forward(self) -> tuple[list[Row], Tensor, ExtensionPlan | None]:
        """Running rows, logits [B, V] of their next tokens, and the plan of the pass."""
        extensions = {id(row): Extension(_slot(row), row.pending) for row in self._running}
        plan = ExtensionPlan(self._cache, list(extensions.values()), self._model.device)
        logits_BV = self._model.logits(self._model.sampled_hidden(plan)[plan.lasts_B])
        places = {id(extension): place for place, extension in enumerate(plan.order)}
        rows = sorted(self._running, key=lambda row: places[id(extensions[id(row)])])
        return rows, logits_BV, plan

    def _took(self, row: Row, token: int) -> None:
        """Mark computed keys and values as cached; the new token is the next input."""
        _slot(row).tokens += row.pending
        row.pending = [token]

    def _admit(self) -> None:
        joining: list[Row] = []
        later: list[Row] = []
        tokens = 0
        rooms = [row.request.room for row in (*self._running, *self._waiting)]
        self._cache.expect(rooms[:MAX_ROWS])
        for row in self._waiting:
            prompt = row.request.tokens
            full = len(self._running) + len(joining) >= MAX_ROWS or tokens >= PREFILL_TOKENS
            if full or any(_worth_waiting(prompt, other) for other in joining):
                later.append(row)
                continue
            found = self._cache.acquire(prompt, row.request.room)
            if found is None:
                later.append(row)
                continue
            row.slot, known = found
            row.pending = prompt[known:]
            tokens += len(row.pending)
            self.computed_tokens += len(row.pending)
            self.reused_tokens += known
            self.effort.joined(len(row.pending), known)
            joining.append(row)
        self._waiting = later
        self._running += joining

    def _leave(self, row: Row) -> None:
        self._running.remove(row)
        self._cache.release(_slot(row))


def _slot(row: Row) -> Slot:
    assert row.slot is not None
    return row.slot


def _worth_waiting(prompt: list[int], other: Row) -> bool:
    """Whether `other` computes tokens now that this prompt could copy a step later."""
    known = len(other.request.tokens) - len(other.pending)
    return shared(prompt, other.request.tokens) >= known + WORTH_WAITING


def draw(logits_BV: Tensor, rows: list[Row]) -> list[SampledToken]:
    """Sample one token per row from its logits with the row's temperature (0: the most likely
    token), top-p and random generator; returns them in row order."""
    temperatures = [row.request.temperature for row in rows]
    scale_B1 = torch.tensor([[t or 1.0] for t in temperatures], device=logits_BV.device)
    logprobs_BV = torch.log_softmax(logits_BV.float() / scale_B1, -1)
    for place, row in enumerate(rows):
        if row.request.top_p < 1:
            logprobs_BV[place] = _nucleus(logprobs_BV[place], row.request.top_p)
    uniform_B1 = torch.stack([torch.rand(1, generator=row.generator) for row in rows])
    cumulative_BV = logprobs_BV.exp().cumsum(-1)
    threshold_B1 = uniform_B1.to(cumulative_BV.device) * cumulative_BV[:, -1:]
    tokens_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(-1)
    tokens_B = tokens_B.clamp(max=logits_BV.shape[-1] - 1)
    greedy_B = torch.tensor([t == 0 for t in temperatures], device=logits_BV.device)
    tokens_B = torch.where(greedy_B, logprobs_BV.argmax(-1), tokens_B)
    chosen_B = logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1).tolist()
    return [
        SampledToken(token, logprob, _top(logprobs_BV[place], rows[place].request.top_logprobs))
        for place, (token, logprob) in enumerate(zip(tokens_B.tolist(), chosen_B, strict=True))
    ]


def _nucleus(logprobs_V: Tensor, top_p: float) -> Tensor:
    """Smallest set of likeliest tokens that holds `top_p`, renormalised (1904.09751)."""
    ordered, index = logprobs_V.sort(descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    ordered[before >= top_p] = -torch.inf
    return torch.log_softmax(torch.empty_like(ordered).scatter_(0, index, ordered), -1)


def _top(logprobs_V: Tensor, count: int) -> list[tuple[int, float]]:
    if not count:
        return []
    best = logprobs_V.topk(count)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


class AloneSampler(Sampler):
    """Sampler without a cache: each step computes the whole sequence of every row."""

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
