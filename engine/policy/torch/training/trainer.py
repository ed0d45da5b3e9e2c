"""Gradients of one batch: prefix trees without padding, the head on trained tokens only."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.policy.base import ScoreBatch, Scores, TrainBatch, TrainItem
from engine.policy.prefix import shared
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.loss import (
    Tokens,
    k3,
    policy_gradient,
    ratio_metrics,
    supervised,
    value_loss,
    value_metrics,
)
from engine.policy.torch.training.prefix_tree import Forest, TreePlan, grow
from engine.policy.torch.training.ranks import Ranks
from engine.policy.torch.utilization import TrainEffort
from engine.protocol.config.algorithm import ValueCredit
from engine.protocol.problems import PolicyError

Progress = Callable[[int, int], None]


class Trained(NamedTuple):
    """Trained tokens of a micro-batch: M in all, N distinct ones by position, token and grammar."""

    places_N: Tensor
    """Positions in the flat row: each token is predicted from the position before it on its
    path."""
    targets_N: Tensor
    which_M: Tensor
    """Index [M] into N: siblings with the same token share its log-prob."""
    masks_NW: Tensor | None
    """Masks of the grammars, W words of 32 tokens; None if no token was sampled under one."""


class Numbers(NamedTuple):
    """Per-token inputs of the loss for M trained tokens; None for data that the batch lacks."""

    tokens: Tokens
    """Token data without the trainer's log-probs."""
    weights_M: Tensor
    values_M: Tensor | None
    returns_M: Tensor | None


class Terms(NamedTuple):
    """Losses of M tokens before averaging, and their terms, for metrics."""

    losses_M: Tensor
    tokens: Tokens
    entropy_M: Tensor
    kl_M: Tensor | None = None
    missed_M: Tensor | None = None
    values_M: Tensor | None = None
    returns_M: Tensor | None = None


def forward_backward(
    model: LoraModel,
    batch: TrainBatch,
    batch_tokens: int,
    progress: Progress,
    ranks: Ranks | None = None,
) -> dict[str, float]:
    """Add the gradients of adapter and value head, with loss = Σ weighted token losses /
    `normaliser`. `batch_tokens`: most tokens per micro-batch, which changes memory only. Returns
    metrics over the batch; with several ranks, rank 0 returns those over all shares, the others
    only their utilization."""
    start_s, done = time.perf_counter(), 0
    effort = TrainEffort(model.shape, [visible_tokens(item) for item in batch.items])
    parts: list[Terms] = []
    for items in micro_batches(batch.items, batch_tokens if model.shares_prefixes else 0):
        forest = grow([visible_tokens(item) for item in items])
        plan = TreePlan(forest, model.device, model.images)
        trained = _trained(items, forest, model)
        with model.recomputing():
            terms = _terms(model, batch, items, plan, trained)
            (terms.losses_M.sum() / batch.normaliser).backward()  # type: ignore[no-untyped-call]
        parts.append(_kept(terms, done))
        done += len(items)
        places = len(trained.places_N.unique())
        effort.ran(plan, places, len(trained.places_N), reference=terms.kl_M is not None)
        progress(done, len(batch.items))
    used = effort.metrics(model.limits, time.perf_counter() - start_s) if parts else {}
    shares = ranks.gathered(parts) if ranks else [parts]
    return (_metrics(batch, _in_a_row(shares)) | used) if shares else used


def _terms(
    model: LoraModel, batch: TrainBatch, items: list[TrainItem], plan: TreePlan, trained: Trained
) -> Terms:
    algorithm = batch.algorithm
    given = _numbers(items, batch.objective == "supervised", model.device)
    hidden_NH = model.hidden(plan)[trained.places_N]
    bends, masks_NW = bool(algorithm.entropy), trained.masks_NW
    logprobs_N, entropy_N = model.selected_logprobs(
        hidden_NH, trained.targets_N, batch.temperature, bends, masks_NW
    )
    tokens = given.tokens._replace(logprobs_M=logprobs_N[trained.which_M])
    terms = Terms(supervised(tokens.logprobs_M), tokens, entropy_N[trained.which_M])
    if batch.objective == "supervised":
        return terms
    losses_M = policy_gradient(tokens, algorithm)
    if algorithm.kl and algorithm.kl_in == "loss":
        reference_N = _reference(model, plan, trained, batch.temperature)
        kl_M = k3(tokens.logprobs_M, reference_N[trained.which_M])
        losses_M = losses_M + algorithm.kl * kl_M
        terms = terms._replace(kl_M=kl_M)
    if algorithm.entropy:
        losses_M = losses_M - algorithm.entropy * terms.entropy_M
    if given.values_M is not None and given.returns_M is not None:
        assert isinstance(algorithm.credit, ValueCredit)
        values_M = _values(model, hidden_NH)[trained.which_M]
        missed_M = value_loss(values_M, given.values_M, given.returns_M, algorithm.credit.clip)
        losses_M = losses_M + algorithm.credit.weight * missed_M
        terms = terms._replace(missed_M=missed_M, values_M=values_M, returns_M=given.returns_M)
    return terms._replace(losses_M=losses_M * given.weights_M)


def _kept(terms: Terms, sequences: int) -> Terms:
    """Terms without the autograd graph, with sequence indices offset by `sequences`."""
    tokens = terms.tokens._replace(
        logprobs_M=terms.tokens.logprobs_M.detach(),
        sequences_M=terms.tokens.sequences_M + sequences,
    )
    optional = (terms.kl_M, terms.missed_M, terms.values_M, terms.returns_M)
    known = [None if value is None else value.detach() for value in optional]
    return Terms(terms.losses_M.detach(), tokens, terms.entropy_M.detach(), *known)


def _in_a_row(shares: list[list[Terms]]) -> list[Terms]:
    """Join the terms of all ranks, renumbering their sequences consecutively."""
    found: list[Terms] = []
    for parts in shares:
        before = int(found[-1].tokens.sequences_M[-1]) + 1 if found else 0
        found += [_kept(part, before) for part in parts] if before else parts
    return found


def _metrics(batch: TrainBatch, parts: list[Terms]) -> dict[str, float]:
    sums = torch.stack([part.losses_M.sum() for part in parts])
    metrics = {
        "loss": (sums.sum() / batch.normaliser).item(),
        "entropy": torch.cat([part.entropy_M for part in parts]).mean().item(),
    }
    if batch.objective == "policy_gradient":
        tokens = Tokens(*map(_joined, zip(*(part.tokens for part in parts), strict=True)))  # type: ignore[arg-type]
        metrics |= ratio_metrics(tokens, batch.algorithm)
    kl_M, missed_M, values_M, returns_M = (
        _joined([getattr(part, name) for part in parts])
        for name in ("kl_M", "missed_M", "values_M", "returns_M")
    )
    if kl_M is not None:
        metrics["kl"] = kl_M.mean().item()
    if missed_M is not None and values_M is not None and returns_M is not None:
        metrics["value/loss"] = missed_M.mean().item()
        metrics |= value_metrics(values_M, returns_M)
    return metrics


@torch.no_grad()
def score(
    model: LoraModel, batch: ScoreBatch, batch_tokens: int, progress: Progress
) -> list[Scores]:
    """Score each item without gradients, as `forward_backward` computes it: log-probs and, if the
    batch asks for them, log-probs of the base model and values. `batch_tokens`: most tokens per
    micro-batch. Results are in the order of the items."""
    found: dict[int, Scores] = {}
    for items in micro_batches(batch.items, batch_tokens if model.shares_prefixes else 0):
        forest = grow([visible_tokens(item) for item in items])
        trained = _trained(items, forest, model)
        plan = TreePlan(forest, model.device, model.images)
        hidden_NH = model.hidden(plan)[trained.places_N]
        logprobs_N, _ = model.selected_logprobs(
            hidden_NH, trained.targets_N, batch.temperature, masks_MW=trained.masks_NW
        )
        numbers = {"logprobs": logprobs_N}
        if batch.reference:
            numbers["reference"] = _reference(model, plan, trained, batch.temperature)
        if batch.values:
            numbers["values"] = _values(model, hidden_NH)
        counts = [sum(end - start for start, end in item.spans) for item in items]
        columns = {k: v[trained.which_M].split(counts) for k, v in numbers.items()}
        for place, item in enumerate(items):
            found[id(item)] = Scores(**{k: v[place].tolist() for k, v in columns.items()})
        progress(len(found), len(batch.items))
    return [found[id(item)] for item in batch.items]


@torch.no_grad()
def _reference(model: LoraModel, plan: TreePlan, trained: Trained, temperature: float) -> Tensor:
    """Log-probs [N] of the untrained model, over the same trees and under the same grammars."""
    with model.trained.disable_adapter():
        hidden_NH = model.hidden(plan)[trained.places_N]
    return model.selected_logprobs(
        hidden_NH, trained.targets_N, temperature, masks_MW=trained.masks_NW
    )[0]


def _values(model: LoraModel, hidden_NH: Tensor) -> Tensor:
    if model.value_head is None:
        raise PolicyError.of("policy.no_value_head", "The policy was loaded without a value head.")
    return model.value_head(hidden_NH)


def visible_tokens(item: TrainItem) -> list[int]:
    """Tokens of a sequence that the forward pass needs: all before its last trained token."""
    return item.tokens[: item.spans[-1][1] - 1]


def micro_batches(
    items: list[TrainItem],
    batch_tokens: int,
    visible_tokens: Callable[[TrainItem], list[int]] = visible_tokens,
) -> Iterator[list[TrainItem]]:
    """Yield the items, ordered by common prefix, in micro-batches of at most `batch_tokens` tokens;
    shared prefixes count once, and a larger item forms its own micro-batch. `visible_tokens`
    returns the tokens of an item that count."""
    chosen: list[TrainItem] = []
    total = 0
    for item in sorted(items, key=lambda item: item.tokens):
        tokens = visible_tokens(item)
        new = len(tokens) - (shared(visible_tokens(chosen[-1]), tokens) if chosen else 0)
        if chosen and total + new > batch_tokens:
            yield chosen
            chosen, total, new = [], 0, len(tokens)
        chosen.append(item)
        total += new
    if chosen:
        yield chosen


class Target(NamedTuple):
    """Trained token in the trees of a micro-batch. Equal ones have the same log-prob: the place
    determines the tokens before it, and these with `start` and `grammar` the mask."""

    place: int
    token: int
    start: int = 0
    """Start of its span, if the span has a grammar."""
    grammar: str = ""


def _trained(items: list[TrainItem], forest: Forest, model: LoraModel) -> Trained:
    numbers: dict[Target, int] = {}
    masks: dict[int, Tensor] = {}
    which: list[int] = []
    for item, places in zip(items, forest.places, strict=True):
        grammars = dict(item.grammars)
        for index, (start, end) in enumerate(item.spans):
            tokens, grammar = item.tokens[start:end], grammars.get(index, "")
            key = (start, grammar) if grammar else (0, "")
            targets = [
                Target(place, token, *key)
                for place, token in zip(places[start - 1 : end - 1], tokens, strict=True)
            ]
            found = [numbers.setdefault(target, len(numbers)) for target in targets]
            which += found
            if grammar:
                masks |= zip(found, model.grammars.masks(grammar, tokens), strict=True)
    return Trained(
        torch.tensor([target.place for target in numbers], device=model.device),
        torch.tensor([target.token for target in numbers], device=model.device),
        torch.tensor(which, device=model.device),
        _all_masks(masks, len(numbers), model) if masks else None,
    )


def _all_masks(masks: dict[int, Tensor], count: int, model: LoraModel) -> Tensor:
    """Masks [N, W] of N tokens on the model's device, from those that have a grammar."""
    masks_NW = torch.full((count, len(next(iter(masks.values())))), -1, dtype=torch.int32)
    masks_NW[list(masks)] = torch.stack(list(masks.values()))
    return masks_NW.to(model.device)


def _numbers(items: list[TrainItem], unsampled: bool, device: torch.device) -> Numbers:
    counts = torch.tensor([sum(end - start for start, end in item.spans) for item in items])

    def joined(lists: list[list[float]]) -> Tensor | None:
        values = [value for of_item in lists for value in of_item]
        return torch.tensor(values, device=device) if values else None

    nothing = torch.zeros(int(counts.sum()), device=device)
    sampled = None if unsampled else joined([item.logprobs for item in items])
    taught = None if unsampled else joined([item.advantages for item in items])
    tokens = Tokens(
        logprobs_M=nothing,
        sampler_logprobs_M=nothing if sampled is None else sampled,
        advantages_M=nothing if taught is None else taught,
        sequences_M=torch.arange(len(items)).repeat_interleave(counts).to(device),
        old_logprobs_M=joined([item.old_logprobs for item in items]),
    )
    return Numbers(
        tokens,
        torch.tensor([item.weight for item in items]).repeat_interleave(counts).to(device),
        joined([item.values for item in items]),
        joined([item.returns for item in items]),
    )


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenation over all micro-batches; None if any part is None."""
    known = [part for part in parts if part is not None]
    return torch.cat(known) if len(known) == len(parts) else None
