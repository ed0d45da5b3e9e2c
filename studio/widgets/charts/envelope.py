"""Min-max envelope: reduces the number of points and keeps every spike. Pure."""

import numpy as np
from numpy.typing import NDArray

ENVELOPE_ABOVE = 1500

Array = NDArray[np.float64]


def envelope(xs: Array, ys: Array, buckets: int) -> tuple[Array, Array]:
    """Reduce a curve to at most two points per bucket, its minimum and maximum, in order of x. Up
    to 1 500 points are returned unchanged. A bucket that contains a nan ends with a nan."""
    if len(xs) <= ENVELOPE_ABOVE or buckets < 1:
        return xs, ys
    size = -(-len(xs) // buckets)
    rows = -(-len(xs) // size)
    start = np.arange(rows) * size
    end = np.minimum(start + size, len(xs)) - 1
    low_y, high_y = np.full(rows * size, np.inf), np.full(rows * size, -np.inf)
    finite = np.isfinite(ys)
    low_y[: len(ys)][finite] = high_y[: len(ys)][finite] = ys[finite]
    low = start + low_y.reshape(rows, size).argmin(axis=1)
    high = start + high_y.reshape(rows, size).argmax(axis=1)
    held = np.add.reduceat(finite.astype(int), start)
    picked = np.stack([np.minimum(low, high), np.maximum(low, high), end], axis=1)
    out_x, out_y = xs[picked], ys[picked]
    out_y[:, 2] = np.nan
    keep = np.ones((rows, 3), dtype=bool)
    keep[:, 1] = low != high
    keep[:, 2] = held <= end - start  # fewer finite values than slots: a gap
    keep[held == 0, :2] = False
    return out_x[keep], out_y[keep]
