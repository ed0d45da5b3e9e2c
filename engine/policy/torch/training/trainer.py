"""Gradients of one batch: prefix trees without padding, the head on trained tokens only."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from engine.policy.base import ScoreBatch, Scores, TrainBatch, TrainItem
from engine.policy.prefix import shared
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.training.prefix_tree import Forest, TreePlan, grow
from engine.policy.torch.training.ranks import Ranks
from engine.policy.torch.training.terms import (
    Computed,
    Terms,
    kept,
    loss_terms,
    metrics_of,
    numbers_of,
)
from engine.policy.torch.utilization import TrainEffort
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
        parts.append(kept(terms, done))
        done += len(items)
        places = len(trained.places_N.unique())
        effort.ran(plan, places, len(trained.places_N), reference=terms.kl_M is not None)
        progress(done, len(batch.items))
    used = effort.metrics(model.limits, time.perf_counter() - start_s) if parts else {}
    shares = ranks.gathered(parts) if ranks else [parts]
    return (metrics_of(batch, _in_a_row(shares)) | used) if shares else used


def _terms(
    model: LoraModel, batch: TrainBatch, items: list[TrainItem], plan: TreePlan, trained: Trained
) -> Terms:
    algorithm, sampled = batch.algorithm, batch.objective == "policy_gradient"
    given = numbers_of(items, not sampled, model.device)
    hidden_NH = model.hidden(plan)[trained.places_N]
    logprobs_N, entropy_N = model.selected_logprobs(
        hidden_NH, trained.targets_N, batch.temperature, bool(algorithm.entropy), trained.masks_NW
    )
    found = [logprobs_N, entropy_N, None, None]
    if sampled and algorithm.kl and algorithm.kl_in == "loss":
        found[2] = _reference(model, plan, trained, batch.temperature)
    if sampled and given.values_M is not None and given.returns_M is not None:
        found[3] = _values(model, hidden_NH)
    computed = Computed(*(None if one is None else one[trained.which_M] for one in found))
    return loss_terms(batch, given, computed)


def _in_a_row(shares: list[list[Terms]]) -> list[Terms]:
    """Join the terms of all ranks, renumbering their sequences consecutively."""
    found: list[Terms] = []
    for parts in shares:
        before = int(found[-1].tokens.sequences_M[-1]) + 1 if found else 0
        found += [kept(part, before) for part in parts] if before else parts
    return found


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
