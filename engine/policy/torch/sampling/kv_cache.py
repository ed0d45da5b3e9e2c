"""Key-value cache of the sampler, one *slot* per sequence.

A slot outlives its request: the next turn of a conversation extends its tokens, and a sibling
copies the shared part, so that every token is computed once while the weights are unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.policy.prefix import shared
from engine.policy.torch.model.attention import causal
from engine.policy.torch.model.images import ImageTokens
from engine.policy.torch.model.scoring import Scoring, weigh

GRAIN = 128
"""Slot capacity grows in steps of this many tokens."""

WORTH_COPYING = 8
"""Minimum number of shared tokens that are copied; fewer are computed again."""


@dataclass
class Slot:
    place: int
    tokens: list[int] = field(default_factory=list)
    """Tokens whose keys and values are cached."""
    shift: int = 0
    """Shift of positions by the images among them."""
    busy: bool = False
    used: int = 0


class KeyValueCache:
    """Keys and values [slots, K, room, D] per layer; grows on demand."""

    def __init__(self, most_slots: int, budget_tokens: int) -> None:
        self._most_slots = most_slots
        self._budget_tokens = budget_tokens
        self._slots: list[Slot] = []
        self._room = 0
        self._expected = 0
        self._clock = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    def forget(self) -> None:
        """Invalidate all cached tokens, since the weights have changed."""
        for slot in self._slots:
            slot.tokens = []

    def expect(self, rooms: Sequence[int]) -> None:
        """Allocate memory for sequences that are about to be acquired. `rooms` is the number of
        tokens to which each may grow; sequences beyond the cache's budget get no memory."""
        room = max(rooms, default=0)
        affordable = max(1, self._budget_tokens // _rounded(max(room, self._room, 1)))
        self._expected = min(len(rooms), self._most_slots, affordable)
        self._make_room(room)

    def acquire(self, tokens: Sequence[int], room: int) -> tuple[Slot, int] | None:
        """Reserve a slot for the sequence `tokens`, which may grow to `room` tokens; returns the
        slot and the number of leading tokens whose keys are cached (always fewer than all). None if
        all slots are busy."""
        tokens = list(tokens)
        idle = [slot for slot in self._slots if not slot.busy]
        own = max((s for s in idle if s.tokens and _extends(tokens, s)), key=_length, default=None)
        source = max(self._slots, key=lambda slot: shared(tokens, slot.tokens), default=None)
        known = shared(tokens, source.tokens) if source else 0
        if own is not None and len(own.tokens) + WORTH_COPYING >= known:
            slot, known = own, len(own.tokens)
        else:
            found = self._free(idle, room)
            if found is None:
                return None
            slot = found
            known = known if known >= WORTH_COPYING else 0
        known = min(known, len(tokens) - 1)
        self._make_room(max(room, self._room))
        if source is not None and slot is not own and slot is not source and known:
            for stored in (*self._keys.values(), *self._values.values()):
                stored[slot.place, :, :known] = stored[source.place, :, :known]
        slot.busy, slot.used = True, self._tick()
        slot.tokens = tokens[:known]
        return slot, known

    def release(self, slot: Slot) -> None:
        slot.busy = False

    def layer(self, number: int, key_KSD: Tensor) -> tuple[Tensor, Tensor]:
        """Key and value tensors of layer `number` in the cache, allocated at first use with the
        heads and type of `key_KSD`."""
        if number not in self._keys:
            heads, _, size = key_KSD.shape
            shape = (self._places, heads, self._room, size)
            self._keys[number] = key_KSD.new_zeros(shape)
            self._values[number] = key_KSD.new_zeros(shape)
        return self._keys[number], self._values[number]

    def _free(self, idle: list[Slot], room: int) -> Slot | None:
        """Empty slot, a new one while memory allows, or the least recently used idle one."""
        for slot in idle:
            if not slot.tokens:
                return slot
        room = max(room, self._room)
        affordable = max(1, self._budget_tokens // _rounded(room))
        if len(self._slots) < min(self._most_slots, affordable):
            slot = Slot(len(self._slots))
            self._slots += [slot]
            self._grow()
            return slot
        return min(idle, key=lambda slot: slot.used, default=None)

    def _make_room(self, room: int) -> None:
        if room > self._room:
            self._room = _rounded(room)
            self._grow()

    def _grow(self) -> None:
        for stores in (self._keys, self._values):
            for number, old in stores.items():
                slots, heads, room, size = old.shape
                wanted = (max(slots, self._places), heads, self._room, size)
                if wanted != tuple(old.shape):
                    new = old.new_zeros(wanted)
                    new[:slots, :, :room] = old
                    stores[number] = new

    @property
    def _places(self) -> int:
        return max(_power(len(self._slots)), self._expected)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


@dataclass
class Extension:
    """Tokens that a forward pass appends to a slot."""

    slot: Slot
    tokens: list[int]

    @property
    def start(self) -> int:
        return len(self.slot.tokens)


class ExtensionPlan:
    """Plan of a forward pass over a flat row: sequences with one new token, then longer pieces."""

    def __init__(
        self,
        cache: KeyValueCache,
        extensions: list[Extension],
        device: torch.device,
        images: ImageTokens | None = None,
    ) -> None:
        self._cache = cache
        singles = [e for e in extensions if len(e.tokens) == 1]
        self._pieces = [e for e in extensions if len(e.tokens) > 1]
        self.order = [*singles, *self._pieces]
        self._count = len(singles)
        self._places_B = torch.tensor([e.slot.place for e in singles], device=device)
        self._ends_B = torch.tensor([e.start for e in singles], device=device)
        self._longest = max((e.start + 1 for e in singles), default=0)
        self._window_slots = max((e.slot.place + 1 for e in singles), default=0)
        self._dense = self._window_slots <= 1.5 * self._count + 2
        self._masks: dict[int | None, Tensor] = {}
        tokens = [token for e in self.order for token in e.tokens]
        self.tokens_1S = torch.tensor([tokens], device=device)
        if images is None:
            places = [p for e in self.order for p in range(e.start, e.start + len(e.tokens))]
            self.positions_1S = torch.tensor([places], device=device)
        else:
            parts = [images.positions(e.tokens, e.start, e.slot.shift)[0] for e in self.order]
            self.positions_1S = torch.cat(parts, 1)[:, None].to(device)
        self.lasts_B = (
            torch.tensor([len(e.tokens) for e in self.order], device=device).cumsum(0) - 1
        )

    @property
    def padded_keys(self) -> int:
        """Number of keys per layer that all rows with one new token attend to together, including
        padding that the mask hides."""
        return (self._window_slots if self._dense else self._count) * self._longest

    def attend(
        self, layer: int, query_QSD: Tensor, key_KSD: Tensor, value_KSD: Tensor, scoring: Scoring
    ) -> Tensor:
        keys, values = self._cache.layer(layer, key_KSD)
        attended = []
        if count := self._count:
            keys[self._places_B, :, self._ends_B] = key_KSD[:, :count].transpose(0, 1)
            values[self._places_B, :, self._ends_B] = value_KSD[:, :count].transpose(0, 1)
            attended.append(self._singles(query_QSD[:, :count], keys, values, scoring))
        offset = self._count
        for piece in self._pieces:
            place, start, end = piece.slot.place, piece.start, piece.start + len(piece.tokens)
            new = slice(offset, offset + len(piece.tokens))
            keys[place, :, start:end] = key_KSD[:, new]
            values[place, :, start:end] = value_KSD[:, new]
            path = keys[place, :, :end][None], values[place, :, :end][None]
            piece_1QTD = causal(query_QSD[None, :, new], *path, scoring)
            attended.append(piece_1QTD[0].transpose(0, 1))
            offset = new.stop
        return torch.cat(attended) if len(attended) > 1 else attended[0]

    def _singles(self, query_QBD: Tensor, keys: Tensor, values: Tensor, scoring: Scoring) -> Tensor:
        """Attention of one query per sequence; the query heads that share keys form the length
        dimension."""
        heads, count, size = query_QBD.shape
        query = query_QBD.transpose(0, 1).reshape(count, keys.shape[1], -1, size)
        keys, values = keys[:, :, : self._longest], values[:, :, : self._longest]
        if self._dense:
            spread = query.new_zeros(self._window_slots, *query.shape[1:])
            spread[self._places_B] = query
            query, keys, values = spread, keys[: len(spread)], values[: len(spread)]
        else:
            keys, values = keys[self._places_B], values[self._places_B]
        mask = self._mask(scoring.window, query)
        if scoring.fused:
            attended = scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, scale=scoring.scale
            )
        else:
            each = query.reshape(len(query), heads, 1, size)
            attended = weigh(each, keys, values, mask[:, 0] == 0, scoring)
        if self._dense:
            attended = attended[self._places_B]
        return attended.reshape(count, heads, size)

    def _mask(self, window: int | None, query: Tensor) -> Tensor:
        """Additive attention mask of each sequence: [rows, 1, 1, L]."""
        if window not in self._masks:
            ends = self._ends_B
            if self._dense:
                ends = torch.zeros(self._window_slots, dtype=torch.long, device=query.device)
                ends[self._places_B] = self._ends_B
            place_L = torch.arange(self._longest, device=query.device)
            hidden = place_L > ends[:, None]
            if window:
                hidden |= place_L <= ends[:, None] - window
            mask = torch.zeros(hidden.shape, dtype=query.dtype, device=query.device)
            self._masks[window] = mask.masked_fill_(hidden, -torch.inf)[:, None, None]
        return self._masks[window]


def _extends(tokens: list[int], slot: Slot) -> bool:
    return len(slot.tokens) < len(tokens) and tokens[: len(slot.tokens)] == slot.tokens


def _length(slot: Slot) -> int:
    return len(slot.tokens)


def _rounded(room: int) -> int:
    return -(-room // GRAIN) * GRAIN


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
