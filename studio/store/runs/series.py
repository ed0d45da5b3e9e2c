"""Metric over steps, in growing arrays."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator


class Series:
    """Points (x, y) with strictly increasing x. `revision` changes with a rewind, not with an
    append."""

    __slots__ = ("revision", "xs", "ys")

    def __init__(self) -> None:
        self.xs = array("d")
        self.ys = array("d")
        self.revision = 0

    def append(self, x: float, y: float) -> None:
        """Append a point after removing all points at `x` or beyond."""
        if self.xs and x <= self.xs[-1]:
            self.rewind(x)
        self.xs.append(x)
        self.ys.append(y)

    def rewind(self, x: float) -> None:
        """Remove all points at `x` or beyond."""
        keep = bisect_left(self.xs, x)
        if keep < len(self.xs):
            del self.xs[keep:]
            del self.ys[keep:]
            self.revision += 1

    @property
    def first(self) -> float | None:
        return self.ys[0] if self.ys else None

    @property
    def last(self) -> float | None:
        return self.ys[-1] if self.ys else None

    def at(self, x: float) -> float | None:
        """Return y at exactly `x`; None without a point there."""
        place = bisect_left(self.xs, x)
        return self.ys[place] if place < len(self.xs) and self.xs[place] == x else None

    def __len__(self) -> int:
        return len(self.xs)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(zip(self.xs, self.ys, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and self.xs == other.xs and self.ys == other.ys

    def __repr__(self) -> str:
        return f"Series({list(self)!r})"
