"""Check of every exported value against base + s·B·A, up to rounding to its precision.

The sum is recomputed in float64. The exact value e of a merged weight is known to ± n, the error of
a float32 sum of r + 1 products (Higham, Accuracy and Stability, 3.1: γ = k·u / (1 − k·u)). A value
that was rounded once lies between round(e − n) and round(e + n), because rounding is monotone.
Weights without an adapter must equal the rounded base weight bit for bit. An adapter that was
merged twice is therefore detected even if its effect on log-probs is too small to see.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from engine.export.torch.experts import Factors
from engine.export.torch.gguf_file import GgufWeights
from engine.export.torch.merge import WEIGHTS, BaseWeights, Progress
from engine.protocol.requests.exports import WeightsCheck

ROUND_OFF = 2.0**-24
"""Unit roundoff u of float32."""
ROWS = 4096
Q8_BLOCK = 32
TIES = 1e-4
"""Tolerance of x / d (at most 127 in float32) around halves, which may be rounded either way."""

Bounds = tuple[Tensor, Tensor]
"""Lowest and highest value that rounding explains, in float32."""


def check_merged(
    base: BaseWeights, adapter: dict[str, Factors], folder: Path, dtype: str, progress: Progress
) -> WeightsCheck:
    """Check merged weights against base and adapter; a copy of tied embeddings is optional."""
    exported = BaseWeights(folder)
    kind = getattr(torch, dtype)

    def bad(name: str) -> int:
        weight = exported.tensor(name)
        if weight.shape != base.shape(name) or weight.dtype != kind:
            return weight.numel()
        return sum(
            _outside(weight[rows], low.to(kind), high.to(kind))
            for rows, (low, high) in _bounds(base.tensor(name), adapter.get(name))
        )

    return _check(base, adapter, set(exported.names), bad, progress)


def check_gguf(
    base: BaseWeights, adapter: dict[str, Factors], file: Path, progress: Progress
) -> WeightsCheck:
    """Check a GGUF file against base and adapter, each tensor by its type in the file."""
    exported = GgufWeights(file, base.folder)

    def bad(name: str) -> int:
        raw, kind = exported.tensor(name)
        return sum(
            _outside_gguf(raw[rows], kind, bounds)
            for rows, bounds in _bounds(base.tensor(name), adapter.get(name))
        )

    return _check(base, adapter, exported.base_names(base.names), bad, progress)


def check_adapter(trained: Path, exported: Path) -> WeightsCheck:
    """Check that an exported PEFT folder has the same numbers as the trained one, bit for bit."""
    ours, theirs = load_file(trained / WEIGHTS), load_file(exported / WEIGHTS)
    both = sorted(ours.keys() & theirs.keys())
    wrong = [name for name in both if not torch.equal(ours[name], theirs[name])]
    return WeightsCheck(
        tensors=len(both),
        adapted=len(both),
        numbers=sum(ours[name].numel() for name in both),
        outside=sum(ours[name].numel() for name in wrong),
        first=wrong[0] if wrong else "",
        missing=sorted(ours.keys() - theirs.keys()),
        unexpected=sorted(theirs.keys() - ours.keys()),
    )


def _check(
    base: BaseWeights,
    adapter: dict[str, Factors],
    exported: set[str],
    bad: Callable[[str], int],
    progress: Progress,
) -> WeightsCheck:
    names = [name for name in base.names if name in exported]
    outside, first, numbers = 0, "", 0
    for done, name in enumerate(names, 1):
        wrong = bad(name)
        first = first or (name if wrong else "")
        outside += wrong
        numbers += int(np.prod(base.shape(name)))
        progress(done, len(names))
    return WeightsCheck(
        tensors=len(names),
        adapted=sum(name in adapter for name in names),
        numbers=numbers,
        outside=outside,
        first=first,
        missing=sorted(set(base.names) - exported),
        unexpected=sorted(exported - set(base.names)),
    )


def _bounds(weight: Tensor, factors: Factors | None) -> Iterator[tuple[slice, Bounds]]:
    """Yield slices of rows (of experts, if they are stacked) with their bounds; both bounds are
    equal without an adapter."""
    step = 1 if factors and factors.up.ndim == 3 else ROWS
    for start in range(0, max(1, len(weight)), step):
        rows = slice(start, start + step)
        piece = weight[rows]
        if factors is None:
            yield rows, (piece.float(), piece.float())
            continue
        of_rows = factors.rows(rows)
        down, up = of_rows.down.double(), of_rows.up.double()
        exact = piece.double() + factors.scale * (up @ down)
        size = piece.double().abs() + abs(factors.scale) * (up.abs() @ down.abs())
        terms = (down.shape[-2] + 3) * ROUND_OFF
        noise = terms / (1 - terms) * size
        yield rows, ((exact - noise).float(), (exact + noise).float())


def _outside(exported: Tensor, low: Tensor, high: Tensor) -> int:
    """Number of values that are not finite, or not between `low` and `high`."""
    return int((~((low <= exported) & (exported <= high) & exported.isfinite())).sum())


def _outside_gguf(raw: NDArray[np.generic], kind: str, bounds: Bounds) -> int:
    if kind == "Q8_0":
        return _outside_q8(raw.view(np.uint8), bounds[0].numpy(), bounds[1].numpy())
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    bits = raw.copy()  # a file's pages cannot be written to, and torch insists
    exported = torch.from_numpy(bits.view(np.int16 if dtype.itemsize == 2 else np.int32))
    low, high = bounds
    return _outside(exported.view(dtype).reshape(low.shape), low.to(dtype), high.to(dtype))


def _outside_q8(
    raw: NDArray[np.uint8], low: NDArray[np.floating], high: NDArray[np.floating]
) -> int:
    """Count values outside of their bounds in Q8_0 (ggml): round(x / d) with d = max|x| / 127. The
    bounds of x give bounds of d, and both together those of the integers."""
    blocks = np.ascontiguousarray(raw).reshape(-1, 2 + Q8_BLOCK)
    scales = blocks[:, :2].copy().view(np.float16)[:, 0].astype(np.float32)
    integers = blocks[:, 2:].view(np.int8).astype(np.float64)
    low, high = (side.reshape(-1, Q8_BLOCK).astype(np.float64) for side in (low, high))
    most = np.maximum(np.abs(low), np.abs(high)).max(axis=1)
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    slack = 8 * ROUND_OFF
    d_low = least.max(axis=1) / 127 * (1 - slack)
    d_high = most / 127 * (1 + slack)
    good_scale = (d_low.astype(np.float16) <= scales) & (scales <= d_high.astype(np.float16))
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = np.stack(
            [np.nan_to_num(x / d[:, None]) for x in (low, high) for d in (d_low, d_high)]
        )
    bottom = np.floor(corners.min(axis=0) + 0.5 - TIES)
    top = np.ceil(corners.max(axis=0) - 0.5 + TIES)
    good = (bottom <= integers) & (integers <= top) & good_scale[:, None]
    return int((~good).sum())
