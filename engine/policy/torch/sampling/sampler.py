"""Continuous batching with exact token ids and log-probabilities.

Every step runs one forward pass: one more token of every running sequence and the prompts of those
that join. Keys and values are kept after a sequence ends, so the next turn of a conversation
computes only new tokens, and siblings compute their prompt once. Finished rows leave at once; an
agent that waits for a tool delays no other. Every request has its own random stream, independent of
the batch: in float32 its tokens are the same alone and in any batch (except for ties of logits
within rounding); bfloat16 rounds differently in other batches.

A request with a grammar joins when the grammar is compiled. The mask of the allowed tokens is
applied before the softmax, so log-probs, top-p and the likeliest tokens are those of the masked
distribution. A grammar that fails ends its own request only.
"""

import time
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.policy.base import SampledToken, SampleRequest
from engine.policy.prefix import shared
from engine.policy.torch.model.grammar import COMPILE_S, Matcher, too_slow, unpack
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.kv_cache import Extension, ExtensionPlan, KeyValueCache, Slot
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from engine.policy.torch.utilization import SampleEffort
from engine.protocol.problems import PolicyError

MAX_ROWS = 64
MOST_SLOTS = 128
PREFILL_TOKENS = 2048
"""Maximum number of prompt tokens per forward pass; at least one prompt joins, however long."""
WORTH_WAITING = 16
"""Minimum number of tokens shared with a prompt that is being computed for which another prompt
waits one step, to copy their keys and values."""

COMPILING_S = 0.01
"""Seconds of a step that waits for grammars because no sequence is running."""

Deliver = Callable[[int, SampledToken, str | None], None]
"""Callback (request number, token, finish reason or None)."""
Refuse = Callable[[int, PolicyError], None]
"""Callback (request number, error) for a request that ends because of its grammar."""


def raise_error(number: int, error: PolicyError) -> None:
    """Raise the error of a refused request."""
    raise error


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
    compiling: "futures.Future[Any] | None" = None
    """Compilation of the request's grammar, which ends before `deadline_s`."""
    deadline_s: float = 0.0
    """Time by the monotonic clock."""
    matcher: Matcher | None = None
    """State of the completion in its grammar."""
    mask_W: Tensor | None = None
    """Mask of the next token, if the request has a grammar."""

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.request.seed)

    def advance(self, token: int) -> bool:
        """Advance the grammar, if any, by a sampled token; returns whether it has ended."""
        return self.matcher is not None and not (
            self.matcher.accept(token) and not self.matcher.finished
        )


class Sampler:
    """Sampler: submit requests, call `step` while `busy`, receive tokens through `deliver`."""

    def __init__(
        self,
        model: LoraModel,
        eos_tokens: Iterable[int],
        deliver: Deliver,
        budget_tokens: int = 65_536,
        refuse: Refuse = raise_error,
    ) -> None:
        self._model = model
        self._eos = frozenset(eos_tokens)
        self._deliver, self._refuse = deliver, refuse
        self._cache = KeyValueCache(MOST_SLOTS, budget_tokens)
        self._compiling: list[Row] = []
        self._waiting: list[Row] = []
        self._running: list[Row] = []
        self.effort = SampleEffort(model.shape)
        self.computed_tokens = 0
        """Prompt tokens that were computed."""
        self.reused_tokens = 0
        """Prompt tokens whose keys and values were cached."""

    @property
    def busy(self) -> bool:
        return bool(self._compiling or self._waiting or self._running)

    @property
    def numbers(self) -> list[int]:
        """Numbers (ids) of the waiting and running requests."""
        return [row.number for row in (*self._compiling, *self._waiting, *self._running)]

    def add(self, number: int, request: SampleRequest) -> None:
        """Add request `number` (its id). Raises PolicyError if its grammar is refused at once."""
        if request.grammar is not None:
            return self._add_with_grammar(number, request, request.grammar)
        eos: frozenset[int] = frozenset() if request.ignore_eos else self._eos
        stops = eos | frozenset(request.stop_tokens)
        self._waiting.append(Row(number, request, stops))

    def _add_with_grammar(self, number: int, request: SampleRequest, grammar: str) -> None:
        row = Row(number, request, frozenset(request.stop_tokens))
        row.compiling = self._model.grammars.start(grammar)
        row.deadline_s = time.monotonic() + COMPILE_S
        self._compiling.append(row)

    def cancel(self, number: int) -> None:
        self._compiling = [row for row in self._compiling if row.number != number]
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
        self._start_compiled()
        start_s = time.perf_counter()
        self._admit()
        self._mask()
        if not self._running:
            return
        rows, logits_BV, plan = self._forward()
        drawn = draw(logits_BV, rows)
        if plan:
            spans = [(e.start, e.start + len(e.tokens)) for e in plan.order]
            seconds = time.perf_counter() - start_s
            self.effort.ran(spans, plan.padded_keys, self._model.limits, seconds)
        for row, token in zip(rows, drawn, strict=True):
            self._took(row, token.token)
            row.produced += 1
            stopped = token.token in row.stops or row.advance(token.token)
            full = row.produced >= row.request.max_tokens
            if stopped or full:
                self._leave(row)
            self._deliver(row.number, token, "stop" if stopped else "length" if full else None)

    def _start_compiled(self) -> None:
        """Let requests whose grammars are compiled wait for room; refuse those that failed."""
        compiling, self._compiling = self._compiling, []
        if compiling and not (self._running or self._waiting):
            tasks = [row.compiling for row in compiling if row.compiling]
            futures.wait(tasks, COMPILING_S, futures.FIRST_COMPLETED)
        for row in compiling:
            assert row.compiling is not None
            if row.compiling.done():
                try:
                    row.matcher = self._model.grammars.matcher(row.compiling.result())
                    row.stops |= frozenset(self._model.grammars.ends)
                    self._waiting.append(row)
                except PolicyError as error:
                    self._refuse(row.number, error)
            elif time.monotonic() > row.deadline_s:
                self._refuse(row.number, too_slow())
            else:
                self._compiling.append(row)

    def _mask(self) -> None:
        """Compute the masks of the running rows; refuse those whose grammars cannot continue."""
        for row in list(self._running):
            if row.matcher:
                try:
                    row.mask_W = row.matcher.mask()
                except PolicyError as error:
                    self._leave(row)
                    self._refuse(row.number, error)

    def _forward(self) -> tuple[list[Row], Tensor, ExtensionPlan | None]:
        """Running rows, logits [B, V] of their next tokens, and the plan of the pass."""
        extensions = {id(row): Extension(_slot(row), row.pending) for row in self._running}
        plan = ExtensionPlan(
            self._cache, list(extensions.values()), self._model.device, self._model.images
        )
        logits_BV = self._model.logits(self._model.sampled_hidden(plan)[plan.lasts_B])
        places = {id(extension): place for place, extension in enumerate(plan.order)}
        rows = sorted(self._running, key=lambda row: places[id(extensions[id(row)])])
        return rows, logits_BV, plan

    def _took(self, row: Row, token: int) -> None:
        """Mark computed keys and values as cached; the new token is the next input."""
        slot, images = _slot(row), self._model.images
        slot.tokens += row.pending
        if images is not None:
            slot.shift += images.shift(row.pending)
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
            if images := self._model.images:
                row.slot.shift = images.shift(prompt[:known])
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
    """Sample one token per row from its logits with the row's mask, temperature (0: the most likely
    token), top-p and random generator; returns them in row order."""
    logits_BV = _masked(logits_BV.float(), rows)
    temperatures = [row.request.temperature for row in rows]
    scale_B1 = torch.tensor([[t or 1.0] for t in temperatures], device=logits_BV.device)
    logprobs_BV = torch.log_softmax(logits_BV / scale_B1, -1)
    for place, row in enumerate(rows):
        if row.request.top_p < 1:
            logprobs_BV[place] = _nucleus(logprobs_BV[place], row.request.top_p)
    uniform_B1 = torch.stack([torch.rand(1, generator=row.generator) for row in rows])
    cumulative_BV = logprobs_BV.exp().cumsum(-1)
    threshold_B1 = uniform_B1.to(cumulative_BV.device) * cumulative_BV[:, -1:]
    tokens_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(-1)
    tokens_B = tokens_B.clamp(max=logits_BV.shape[-1] - 1)
    greedy_B = torch.tensor([t == 0 for t in temperatures], device=logits_BV.device)
    excluded_B = logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1).isneginf()  # by rounding
    tokens_B = torch.where(greedy_B | excluded_B, logprobs_BV.argmax(-1), tokens_B)
    chosen_B = logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1).tolist()
    return [
        SampledToken(token, logprob, _top(logprobs_BV[place], rows[place].request.top_logprobs))
        for place, (token, logprob) in enumerate(zip(tokens_B.tolist(), chosen_B, strict=True))
    ]


def _masked(logits_BV: Tensor, rows: list[Row]) -> Tensor:
    """Logits with −∞ for tokens that the grammar of their row forbids."""
    places = [place for place, row in enumerate(rows) if row.mask_W is not None]
    if not places:
        return logits_BV
    masks_MW = torch.stack([row.mask_W for row in rows if row.mask_W is not None])
    allowed_MV = unpack(masks_MW, logits_BV.shape[1]).to(logits_BV.device)
    if len(places) == len(rows):
        return logits_BV.where(allowed_MV, -torch.inf)
    logits_BV[places] = logits_BV[places].where(allowed_MV, -torch.inf)
    return logits_BV


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
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(token, logprob) for token, logprob in pairs if logprob > -torch.inf]


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
        model = self._model
        lasts = [
            model.hidden(TreePlan(grow([row.pending]), model.device, model.images))[-1]
            for row in self._running
        ]
        return list(self._running), self._model.logits(torch.stack(lasts)), None

    def _took(self, row: Row, token: int) -> None:
        row.pending.append(token)

    def _leave(self, row: Row) -> None:
        self._running.remove(row)
