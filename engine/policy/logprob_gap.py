"""Comparison of sampler and trainer by the log-probs of one fixed text. Pure functions.

Two checks are needed: whether the log-probs agree within the precision, and, if the update has
changed the trainer measurably, whether the sampler changed likewise. A small update changes
log-probs by less than bfloat16 rounding, so a sampler with the previous adapter would pass the
first check.
"""

from collections.abc import Sequence

from engine.protocol.problems import Problem

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.15, "float16": 0.05}
"""Mean |Δ log-prob| in nats between trainer and sampler, by the coarser precision of the two."""
FOLLOWED = 0.5
"""Least share of the trainer's change that the sampler must show."""
CLEAR = 4.0
"""A change counts as measurable if the standard error of that share, times this, is at most 1."""


def stale_or_different(
    sampler: Sequence[float], trainer: Sequence[float], before: Sequence[float], dtype: str
) -> Problem | None:
    """Problem if the sampler does not use the published adapter or differs from the trainer; else
    None. Compares log-probs of the same tokens by `sampler`, by `trainer`, and by the trainer
    `before` the update (empty: unknown). `dtype` sets the tolerance."""
    gap = mean_gap(sampler, trainer)
    if before and (share := followed(sampler, trainer, before)) is not None and share < FOLLOWED:
        return Problem(
            code="policy.stale_adapter",
            message="The sampler did not load the new adapter: its log-probs show "
            f"{max(0.0, share):.0%} of the trainer's change (difference {gap:.3g} nats per token).",
            hint="Resume from the last checkpoint. If this happens again, set "
            'backend.sampler = "torch" to sample without vLLM.',
        )
    if not gap <= TOLERANCE[dtype]:
        return Problem(
            code="policy.publish_differs",
            message=f"After publishing the adapter, log-probs of sampler and trainer differ by "
            f"{gap:.3g} nats per token.",
            hint="The adapter may have diverged: lower train.lr and resume from a checkpoint.",
        )
    return None


def followed(
    sampler: Sequence[float], trainer: Sequence[float], before: Sequence[float]
) -> float | None:
    """Share of the trainer's change (`before` to `trainer`) that the `sampler` shows: the
    least-squares a of sampler − before = a (trainer − before). None if rounding hides it: the
    standard error of a is above 1 / CLEAR."""
    steps = [(s - b, t - b) for s, t, b in zip(sampler, trainer, before, strict=True)]
    size = sum(moved * moved for _, moved in steps)
    if not size:
        return None
    share = sum(made * moved for made, moved in steps) / size
    rest = sum((made - share * moved) ** 2 for made, moved in steps)
    error = (rest / max(1, len(steps) - 1) / size) ** 0.5
    return share if error * CLEAR <= 1 else None


def mean_gap(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)
