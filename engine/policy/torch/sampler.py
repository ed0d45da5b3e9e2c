"""Batched sampling with exact token ids and log-probabilities.

Requests that arrive together form a *cohort*: one prefill (each distinct prompt once, so a group
shares its prompt), then one decode step after another; finished rows leave. Cohorts take turns, so
a late request waits for nobody's last token. Every request has its own random stream, whatever it
is batched with.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from engine.policy.base import SampledToken, SampleRequest

MAX_ROWS = 64
COMPACT_SHARE = 0.75
"""A cohort drops its finished rows when fewer than this share of its rows is alive."""

Deliver = Callable[[int, SampledToken, str | None], None]
"""(request number, token, finish reason or None)."""


@dataclass
class Row:
    number: int
    request: SampleRequest
    stops: frozenset[int]
    generator: torch.Generator = field(init=False)
    produced: int = 0
    alive: bool = True

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.request.seed)


class Sampler:
    """Give it requests, call `step` while `busy`, receive tokens through `deliver`."""

    def __init__(self, model: PreTrainedModel, eos_tokens: Iterable[int], deliver: Deliver) -> None:
        self._model = model
        self._eos = frozenset(eos_tokens)
        self._deliver = deliver
        self._waiting: list[Row] = []
        self._cohorts: list[Cohort] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._cohorts)

    def add(self, number: int, request: SampleRequest) -> None:
        stops = self._eos | frozenset(request.stop_tokens)
        self._waiting.append(Row(number, request, stops))

    def cancel(self, number: int) -> None:
        self._waiting = [row for row in self._waiting if row.number != number]
        for cohort in self._cohorts:
            for row in cohort.rows:
                row.alive = row.alive and row.number != number

    @torch.inference_mode()
    def step(self) -> None:
        """One token for every row of one cohort; waiting requests get theirs first."""
        if self._waiting:
            rows, self._waiting = self._waiting[:MAX_ROWS], self._waiting[MAX_ROWS:]
            cohort = Cohort(self._model, rows)
            self._draw(cohort)
        else:
            cohort = self._cohorts.pop(0)
            cohort.forward()
            self._draw(cohort)
        if cohort.compact():
            self._cohorts.append(cohort)

    def _draw(self, cohort: "Cohort") -> None:
        for row, token in zip(cohort.rows, draw(cohort.logits_BV, cohort.rows), strict=True):
            if not row.alive:
                continue
            row.produced += 1
            stopped = token.token in row.stops
            full = row.produced >= row.request.max_tokens
            row.alive = not (stopped or full)
            self._deliver(row.number, token, "stop" if stopped else "length" if full else None)
            cohort.last_tokens[row.number] = token.token


class Cohort:
    """Rows that decode in step, left-padded to one length, over one key-value cache."""

    def __init__(self, model: PreTrainedModel, rows: list[Row]) -> None:
        self._model = model
        self.rows = rows
        self.last_tokens: dict[int, int] = {}
        prompts = list(dict.fromkeys(tuple(row.request.tokens) for row in rows))
        places = {prompt: place for place, prompt in enumerate(prompts)}
        tokens_UT, self._mask_BT = _left_pad(prompts, model.device)
        positions_UT = (self._mask_BT.cumsum(-1) - 1).clamp(min=0)
        output = model(
            input_ids=tokens_UT,
            attention_mask=self._mask_BT,
            position_ids=positions_UT,
            use_cache=True,
            past_key_values=DynamicCache(config=model.config),
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        spread = [places[tuple(row.request.tokens)] for row in rows]
        self.logits_BV = output.logits[:, -1]
        if spread != list(range(len(prompts))):
            self._select(torch.tensor(spread, device=model.device))

    def forward(self) -> None:
        """Feed each row's last token."""
        device = self._model.device
        tokens_B1 = torch.tensor([[self.last_tokens[r.number]] for r in self.rows], device=device)
        self._mask_BT = torch.cat([self._mask_BT, torch.ones_like(tokens_B1)], -1)
        output = self._model(
            input_ids=tokens_B1,
            attention_mask=self._mask_BT,
            position_ids=self._mask_BT.sum(-1, keepdim=True) - 1,
            use_cache=True,
            past_key_values=self._cache,
        )
        self.logits_BV = output.logits[:, -1]

    def compact(self) -> bool:
        """Drop finished rows where it pays. False when none is alive."""
        alive = [place for place, row in enumerate(self.rows) if row.alive]
        if alive and len(alive) < COMPACT_SHARE * len(self.rows):
            self._select(torch.tensor(alive, device=self._model.device))
            self.rows = [self.rows[place] for place in alive]
        return bool(alive)

    def _select(self, index: Tensor) -> None:
        self._cache.batch_select_indices(index)
        self._mask_BT = self._mask_BT[index]
        self.logits_BV = self.logits_BV[index]


def draw(logits_BV: Tensor, rows: list[Row]) -> list[SampledToken]:
    """One token per row by inverse transform sampling: one uniform number from the row's stream."""
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


def _left_pad(prompts: list[tuple[int, ...]], device: torch.device) -> tuple[Tensor, Tensor]:
    length = max(map(len, prompts))
    tokens = torch.zeros((len(prompts), length), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for place, prompt in enumerate(prompts):
        tokens[place, length - len(prompt) :] = torch.tensor(prompt)
        mask[place, length - len(prompt) :] = 1
    return tokens.to(device), mask.to(device)
