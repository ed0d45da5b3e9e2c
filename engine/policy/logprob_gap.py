"""Does the sampler have what the trainer has? Log-probs of one fixed text, from both. Pure.

Two questions, for an answer to the first can hide one to the second: are they near enough for the
precision, and, where the update has visibly moved the trainer, has the sampler moved along? A small
update changes log-probs by less than bfloat16 rounds them, and a sampler that still has the adapter
before would pass the first.
"""

from collections.abc import Sequence

from engine.protocol.problems import Problem

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.15, "float16": 0.05}
"""Mean |Δ log-prob| in nats between trainer and sampler, by the coarser precision of the two."""
FOLLOWED = 0.5
"""Share of the trainer's movement that the sampler must have made."""
CLEAR = 4.0
"""A movement is visible when that share is known to within a quarter of itself: the rounding's
standard error, times this."""


def stale_or_different(
    told: Sequence[float], said: Sequence[float], before: Sequence[float], dtype: str
) -> Problem | None:
    """`told` by the sampler, `said` by the trainer now and `before` the update (or empty)."""
    gap = mean_gap(told, said)
    if before and (share := followed(told, said, before)) is not None and share < FOLLOWED:
        return Problem(
            code="policy.stale_adapter",
            message="The sampler did not load the new adapter: its log-probs followed "
            f"{max(0.0, share):.0%} of the trainer's change (difference {gap:.3g} nats per token).",
            hint="Resume from the last checkpoint. If it happens again, set "
            'backend.sampler = "torch" to sample without a server.',
        )
    if not gap <= TOLERANCE[dtype]:
        return Problem(
            code="policy.publish_differs",
            message=f"After publishing, sampler and trainer differ by {gap:.3g} nats per token.",
            hint="The adapter may have diverged: lower train.lr and resume from a checkpoint.",
        )
    return None


def followed(told: Sequence[float], said: Sequence[float], before: Sequence[float]) -> float | None:
    """Share of the trainer's change (`before` to `said`) that the sampler has followed: the
    least-squares a of told − before = a (said − before). None where rounding hides it: the standard
    error of a is above 1 / CLEAR."""
    steps = [
        (sampler - then, trainer - then)
        for sampler, trainer, then in zip(told, said, before, strict=True)
    ]
    size = sum(moved * moved for _, moved in steps)
    if not size:
        return None
    share = sum(made * moved for made, moved in steps) / size
    rest = sum((made - share * moved) ** 2 for made, moved in steps)
    error = (rest / max(1, len(steps) - 1) / size) ** 0.5
    return share if error * CLEAR <= 1 else None


def mean_gap(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)
