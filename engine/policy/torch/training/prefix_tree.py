"""Prefix trees of the sequences of one batch: shared tokens are computed once.

`grow` merges token sequences into segments (a trie with compressed paths). `TreePlan` lets every
segment of a flat row attend to its path. A group's prompt, a conversation's earlier turns and equal
completions are each one segment of the row. A token has the same position and sees the same tokens
as in its own sequence, so log-probs and gradients equal those of separate rows.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from engine.policy.prefix import shared
from engine.policy.torch.model.attention import PathAttention, band
from engine.policy.torch.model.images import ImageTokens
from engine.policy.torch.model.scoring import Scoring, weigh

STEM, BRANCHES = [11, 7, 19, 5, 13, 3, 17, 2], ([23, 4, 9, 6], [8, 21, 10, 12])
TOLERANCE = {torch.float32: 1e-3}
COARSE_TOLERANCE = 0.05
"""Relative difference of the branches' hidden states; bfloat16 differs by about 0.01."""

FULL_ENOUGH = 0.6
"""Siblings are batched while the shortest has at least this share of the longest one's tokens."""


@dataclass(eq=False)
class Segment:
    """Tokens shared by the same sequences; `start` is their position on the path."""

    start: int
    tokens: list[int]
    parent: "Segment | None"
    offset: int = 0
    """Position of the segment's first token in the flat row."""
    number: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def path(self) -> list["Segment"]:
        """Segments from the root of the tree to this one."""
        above = self.parent.path() if self.parent else []
        return [*above, self]


@dataclass
class Forest:
    """Trees in depth-first order, and the last segment of each sequence (None for an empty one)."""

    segments: list[Segment]
    ends: list[Segment | None]
    places: list[list[int]] = field(default_factory=list)
    """Position in the row of each token, per sequence."""

    @property
    def tokens(self) -> int:
        return sum(len(segment.tokens) for segment in self.segments)


def grow(sequences: Sequence[list[int]]) -> Forest:
    """Build trees that store common prefixes of the token sequences once. `ends` and `places` of
    the result have one entry per sequence, in the given order."""
    order = sorted(range(len(sequences)), key=sequences.__getitem__)
    ends: list[Segment | None] = [None] * len(sequences)
    segments: list[Segment] = []
    branch: list[Segment] = []  # the path of the sequence before
    before: list[int] = []
    for index in order:
        tokens = sequences[index]
        common = shared(before, tokens)
        while branch and branch[-1].start >= common:
            branch.pop()
        if branch and branch[-1].end > common:
            _split(branch, common, segments, ends)
        if common < len(tokens):
            new = Segment(common, tokens[common:], branch[-1] if branch else None)
            segments.append(new)
            branch.append(new)
        ends[index] = branch[-1] if branch else None
        before = tokens
    forest = Forest(_depth_first(segments), ends)
    offset = 0
    for number, segment in enumerate(forest.segments):
        segment.number, segment.offset = number, offset
        offset += len(segment.tokens)
    forest.places = [
        [p for s in end.path() for p in range(s.offset, s.offset + len(s.tokens))] if end else []
        for end in ends
    ]
    return forest


def _split(
    branch: list[Segment], common: int, segments: list[Segment], ends: list[Segment | None]
) -> None:
    """Split the last segment of a branch: it keeps the common part, a new child the rest."""
    upper = branch[-1]
    cut = common - upper.start
    lower = Segment(common, upper.tokens[cut:], upper)
    upper.tokens = upper.tokens[:cut]
    for segment in segments:
        if segment.parent is upper:
            segment.parent = lower
    for index, end in enumerate(ends):
        if end is upper:
            ends[index] = lower
    segments.append(lower)


def _depth_first(segments: list[Segment]) -> list[Segment]:
    children: dict[int, list[Segment]] = {}
    for segment in segments:
        children.setdefault(id(segment.parent), []).append(segment)
    ordered: list[Segment] = []
    waiting = list(reversed(children.get(id(None), [])))
    while waiting:
        segment = waiting.pop()
        ordered.append(segment)
        waiting += reversed(children.get(id(segment), []))
    return ordered


class TreePlan:
    """Attention plan: every segment attends to its path; siblings of similar length are batched."""

    def __init__(
        self, forest: Forest, device: torch.device, images: ImageTokens | None = None
    ) -> None:
        """`images`: those of a model that reads images."""
        self._lengths = [len(segment.tokens) for segment in forest.segments]
        self._batches = [list(batch) for batch in _batches(forest.segments)]
        self._masks: dict[tuple[int, int, int, int | None], Tensor | None] = {}
        self.layers: Counter[int] = Counter()
        """Number of uses of this plan, by layer."""
        tokens = [token for segment in forest.segments for token in segment.tokens]
        self.tokens_1S = torch.tensor([tokens], device=device)
        self.positions_1S = _positions(forest.segments, images).to(device)

    def attend(
        self, layer: int, query_QSD: Tensor, key_KSD: Tensor, value_KSD: Tensor, scoring: Scoring
    ) -> Tensor:
        self.layers[layer] += 1
        queries = query_QSD.split(self._lengths, 1)
        keys, values = key_KSD.split(self._lengths, 1), value_KSD.split(self._lengths, 1)
        attended: list[Tensor | None] = [None] * len(queries)
        for batch in self._batches:
            longest = max(self._lengths[segment.number] for segment in batch)
            above = batch[0].parent.path() if batch[0].parent else []
            query = _stack([queries[s.number] for s in batch], longest)
            key = _stack([keys[s.number] for s in batch], longest)
            value = _stack([values[s.number] for s in batch], longest)
            if not above:
                out = self._siblings(query, key, value, scoring)
            elif _merges(query, scoring) and (not scoring.window or batch[0].end <= scoring.window):
                path = _joined([keys[s.number] for s in above])
                known = _joined([values[s.number] for s in above])
                out = PathAttention.apply(query, key, value, path, known, scoring.scale)
                out = out.transpose(1, 2)
            else:
                key = _below([keys[s.number] for s in above], key)
                value = _below([values[s.number] for s in above], value)
                out = self._siblings(query, key, value, scoring)
            for segment, result in zip(batch, out, strict=True):
                attended[segment.number] = result[: self._lengths[segment.number]]
        return torch.cat([result for result in attended if result is not None])

    def pairs(self, window: int | None) -> int:
        """Number of (query, key) pairs, masked ones included, that a layer with this sliding window
        (None: full attention) computes."""
        total = 0
        for batch in self._batches:
            longest, past = self._lengths[batch[0].number], batch[0].start
            plain = not past and not (window and window < longest)
            each = longest * (longest + 1) // 2 if plain else longest * (past + longest)
            total += len(batch) * each
        return total

    def _siblings(self, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """Attention [B, Q, T, D] over [B, K, L, D] → [B, T, Q, D], heads stacked by their keys."""
        count, heads, length, size = query.shape
        groups, scale = heads // key.shape[1], scoring.scale
        if not scoring.fused:
            seen = band(length, key.shape[2] - length, scoring.window, query.device)
            return weigh(query, key, value, seen, scoring).transpose(1, 2)
        mask = self._mask(length, key.shape[2] - length, groups, scoring.window, query.device)
        if mask is None:
            if groups > 1:
                key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        else:
            folded = query.reshape(count, key.shape[1], groups * length, size)
            out = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
            out = out.reshape(count, heads, length, size)
        return out.transpose(1, 2)

    def _mask(
        self, length: int, past: int, groups: int, window: int | None, device: torch.device
    ) -> Tensor | None:
        """Mask [g·T, L]; None if the plain causal kernel suffices."""
        if not past and not (window and window < length):
            return None
        shape = (length, past, groups, window)
        if shape not in self._masks:
            self._masks[shape] = band(length, past, window, device).repeat(groups, 1)
        return self._masks[shape]


def _positions(segments: list[Segment], images: ImageTokens | None) -> Tensor:
    """Positions of the tokens of segments in depth-first order: [1, S], or [3, 1, S] if images
    shift them."""
    if images is None:
        return torch.tensor([[p for s in segments for p in range(s.start, s.end)]])
    parts, shifts = [], dict[int, int]()
    for segment in segments:
        before = shifts[segment.parent.number] if segment.parent else 0
        part_3T, shifts[segment.number] = images.positions(segment.tokens, segment.start, before)
        parts.append(part_3T)
    return torch.cat(parts, 1)[:, None]


def _batches(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Batches of siblings of similar length, longest first; roots count as siblings."""
    families: dict[int, list[Segment]] = {}
    for segment in segments:
        families.setdefault(id(segment.parent), []).append(segment)
    for family in families.values():
        batch: list[Segment] = []
        for segment in sorted(family, key=lambda s: -len(s.tokens)):
            if batch and len(segment.tokens) < FULL_ENOUGH * len(batch[0].tokens):
                yield batch
                batch = []
            batch.append(segment)
        yield batch


def _stack(pieces: list[Tensor], longest: int) -> Tensor:
    """Stack pieces [H, T, D] to [B, H, longest, D], padded with zeros."""
    return torch.stack([pad(piece, (0, 0, 0, longest - piece.shape[1])) for piece in pieces])


@torch.inference_mode()
def shares_prefixes(
    hidden: Callable[[TreePlan], Tensor],
    layers: int,
    device: torch.device,
    images: ImageTokens | None = None,
) -> bool:
    """Whether `hidden`, on trial, gives a tree of two branches the hidden states of the two
    separate sequences, and each of the model's `layers` (their number) uses the plan once. Layers
    with a state (linear attention, state spaces) cannot branch; attention in a model's own code
    ignores plans; a layer that attends twice would overwrite its cached keys."""
    sequences = [STEM + branch for branch in BRANCHES]
    forest = grow(sequences)
    plan = TreePlan(forest, device, images)
    together_SH = hidden(plan)
    if list(plan.layers.values()) != [1] * layers:
        return False
    tolerance = TOLERANCE.get(together_SH.dtype, COARSE_TOLERANCE)
    for tokens, places in zip(sequences, forest.places, strict=True):
        alone_SH = hidden(TreePlan(grow([tokens]), device, images))
        if (together_SH[places] - alone_SH).norm() > tolerance * alone_SH.norm():
            return False
    return True


def _merges(query: Tensor, scoring: Scoring) -> bool:
    """Whether the merged kernel is worthwhile: in float32 it saves nothing and rounds once more."""
    return scoring.fused and query.device.type == "cpu" and query.dtype == torch.bfloat16


def _below(above: list[Tensor], own_BKTD: Tensor) -> Tensor:
    """Common path followed by each sibling's own part: [B, K, L, D]."""
    path = _joined(above).expand(len(own_BKTD), -1, -1, -1)
    return torch.cat([path, own_BKTD], 2)


def _joined(pieces: list[Tensor]) -> Tensor:
    return torch.cat(pieces, 1) if len(pieces) > 1 else pieces[0]
