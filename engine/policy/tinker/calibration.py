"""Calibration of a cluster: what its gradients, steps, snapshots and seeds really do.

Gradients are compared by the norm that a step returns, with learning rate 0. A server whose
behaviour cannot be carried is refused with a sentence; what differs from our trainer is named in
the profile.
"""

import secrets
import tempfile
from pathlib import Path
from typing import NamedTuple

from engine.policy.base import TrainItem
from engine.policy.logprob_gap import TOLERANCE, mean_gap
from engine.policy.tinker.adapter_files import read_config
from engine.policy.tinker.cluster import Cluster
from engine.protocol.problems import PolicyError
from engine.protocol.records.clusters import ClusterProfile

TEXT_TOKENS = 24
MOVED = 1e-6
EQUAL = 0.02
"""Largest relative difference of gradient norms that count as equal."""
CANCELLED = 0.02
"""Largest norm, relative to one item's, of the sum of opposite gradients."""
MOST_GAP = TOLERANCE["bfloat16"]
"""Largest mean |Δ log-prob| in nats between sampler and trainer of a new adapter."""
LEAST_MOVE = 1e-3
"""Smallest change of log-probs, in nats, that counts as measurable."""
RATES = (0.01, 0.1, 1.0)
"""Learning rates of the clipping test, in order of use until the change is measurable."""


class Calibration(NamedTuple):
    """Result of a calibration."""

    profile: ClusterProfile
    text: list[int]
    """Tokens that the cluster has sampled, as the fixed text of later checks."""


async def calibrate(cluster: Cluster, model: str, rank: int, seed: int, start: int) -> Calibration:
    """Measure a cluster's behaviour on a scratch model, which stays in training until the next
    `create` or `resume`. `start`: first token of the sampled test text. Raises PolicyError if the
    cluster's behaviour cannot be compensated."""
    await cluster.create(model, rank, seed)
    snapshot = await cluster.snapshot(f"calibration-{secrets.token_hex(4)}")
    text, repeats = await _text(cluster, snapshot, start)
    item = TrainItem(tokens=text, spans=[(1, len(text))])
    (before,) = await cluster.forward([item])
    (repeated,) = await cluster.forward([item])
    (sampler,) = await cluster.score(snapshot, [text])
    (after,) = await cluster.forward([item])
    noise = mean_gap(before, repeated)
    if (moved_by := mean_gap(before, after)) > moved_above(noise):
        raise _refused(
            "sampling changed the weights in training by {gap:.3g} nats per token", gap=moved_by
        )
    gap = mean_gap(sampler, before)
    if not gap <= MOST_GAP:
        raise _refused("its sampler and its trainer differ by {gap:.3g} nats per token", gap=gap)
    sequences, tokens = await _reduction(cluster, item, before)
    clips, moved = await _clipping(cluster, item, before)
    pinned = await _pinned(cluster, snapshot, item, sampler, moved)
    alpha = await _alpha(cluster, snapshot)
    profile = ClusterProfile.model_validate(
        {
            "name": cluster.spec.name,
            "client": cluster.client,
            "model": model,
            "sequences": sequences,
            "tokens": tokens,
            "clips": clips,
            "pinned": pinned,
            "repeats": repeats,
            "alpha": alpha,
            "logprob_gap": gap,
            "noise": noise,
        }
    )
    return Calibration(profile, text)


def moved_above(noise: float) -> float:
    """Change of the trainer's log-probs, in nats per token, above which its weights have moved."""
    return max(MOVED, 4 * noise)


async def _text(cluster: Cluster, snapshot: str, start: int) -> tuple[list[int], bool]:
    """Sampled text, and whether a second sample with the same seed is equal. Raises PolicyError if
    the sampler's log-probs are not those of temperature 1."""
    sampling = {"max_tokens": TEXT_TOKENS, "temperature": 1.0, "top_p": 1.0, "seed": 0}
    one = await cluster.sample(snapshot, [start], **sampling)
    again = await cluster.sample(snapshot, [start], **sampling)
    if len(one.tokens) < TEXT_TOKENS or len(one.logprobs) != len(one.tokens):
        raise _refused(
            "it returned {tokens} tokens and {logprobs} log-probs for a test request",
            tokens=len(one.tokens),
            logprobs=len(one.logprobs),
        )
    text = [start, *one.tokens]
    (trainer,) = await cluster.forward([TrainItem(tokens=text, spans=[(1, len(text))])])
    gap = mean_gap(one.logprobs, trainer)
    if not gap <= MOST_GAP:
        raise _refused("log-probs of its samples are off by {gap:.3g} nats per token", gap=gap)
    return text, one.tokens == again.tokens


async def _reduction(cluster: Cluster, item: TrainItem, logprobs: list[float]) -> tuple[str, str]:
    """Reduction over sequences and over tokens. Raises PolicyError if gradients are not linear in
    the advantages or depend on how a batch is split."""
    count = len(logprobs)
    full = [1.0] * count
    half = count // 2
    middle = [float(n == half) for n in range(1, count + 1)]
    short = item.model_copy(update={"tokens": item.tokens[: half + 1], "spans": [(1, half + 1)]})
    last = [float(n == half) for n in range(1, half + 1)]

    async def norm(*calls: list[tuple[TrainItem, list[float]]]) -> float:
        for call in calls:
            known = [logprobs[: len(row)] for _, row in call]
            await cluster.backward([one for one, _ in call], known, [row for _, row in call])
        return await _norm(cluster)

    one = await norm([(item, full)])
    if not one > 0:
        raise _refused("its gradient of a test text is {one:g}", one=one)
    for name, found, wanted in (
        ("the negative", await norm([(item, [-1.0] * count)]), one),
        ("twice", await norm([(item, [2.0] * count)]), 2 * one),
    ):
        if not _equal(found, wanted):
            raise _refused(
                "its gradients are not linear: {name} of an advantage gives a norm of {found:.4g}, "
                "expected {wanted:.4g}",
                name=name,
                found=found,
                wanted=wanted,
            )
    opposite = await norm([(item, full), (item, [-1.0] * count)])
    if not opposite <= CANCELLED * one:
        raise _refused("opposite advantages do not cancel (norm {found:.3g})", found=opposite)
    together = await norm([(item, full), (item, full)])
    apart = await norm([(item, full)], [(item, full)])
    if not _equal(together, apart):
        raise _refused(
            "its gradient depends on how a batch is split (norms {together:.4g} and {apart:.4g})",
            together=together,
            apart=apart,
        )
    sequences = _which(together / one, {"sum": 2.0, "mean": 1.0})
    alone = await norm([(short, last)])
    tokens = _which(alone / await norm([(item, middle)]), {"sum": 1.0, "mean": count / half})
    beside = await norm([(item, [0.0] * count), (short, last)])
    if not _equal(beside / alone, 1.0 if sequences == "sum" else 0.5):
        raise _refused(
            "its reduction over sequences of different lengths is unknown (ratio {ratio:.4g})",
            ratio=beside / alone,
        )
    return sequences, tokens


async def _clipping(
    cluster: Cluster, item: TrainItem, before: list[float]
) -> tuple[bool, list[float]]:
    """Whether a step clips gradients, and the log-probs afterwards. With β = 0 and ε = 1 an update
    is nearly proportional to the gradient, so clipping shows in its size."""
    adam = {"beta1": 0.0, "beta2": 0.0, "eps": 1.0, "weight_decay": 0.0}
    for rate in RATES:
        changes = []
        for clip in (1e-4, 1e6):
            await cluster.backward([item], [before], [[1.0] * len(before)])
            await cluster.step(learning_rate=rate, grad_clip_norm=clip, **adam)
            (after,) = await cluster.forward([item])
            changes.append(mean_gap(after, before))
            before = after
        clipped, free = changes
        if free >= LEAST_MOVE:
            return clipped < 0.2 * free, before
    raise _refused("its steps do not change the model")


async def _pinned(
    cluster: Cluster, snapshot: str, item: TrainItem, sampled: list[float], moved: list[float]
) -> bool:
    """Whether a snapshot keeps its log-probs `sampled` after the trainer has `moved` away, and the
    trainer keeps its own while the snapshot is used again after a newer one."""
    newer = await cluster.snapshot(f"calibration-{secrets.token_hex(4)}")
    await cluster.score(newer, [item.tokens])
    (old,) = await cluster.score(snapshot, [item.tokens])
    (now,) = await cluster.forward([item])
    change = mean_gap(moved, sampled)
    return mean_gap(old, sampled) < 0.1 * change and mean_gap(now, moved) < 0.1 * change


async def _alpha(cluster: Cluster, snapshot: str) -> float:
    with tempfile.TemporaryDirectory(prefix="atelier-") as scratch:
        folder = Path(scratch) / "adapter"
        await cluster.download(snapshot, folder)
        return read_config(folder).lora_alpha


async def _norm(cluster: Cluster) -> float:
    """Gradient norm of a step with learning rate 0. Raises PolicyError if the step returns none."""
    metrics = await cluster.step(
        learning_rate=0.0, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0, grad_clip_norm=0.0
    )
    norm = grad_norm(metrics)
    if norm is None:
        raise _refused("its steps return no gradient norm, so its gradients cannot be verified")
    return norm


def grad_norm(metrics: dict[str, float]) -> float | None:
    """Gradient norm among a step's metrics, whatever prefix the server gives it."""
    for name, value in metrics.items():
        if name.rpartition("/")[2].partition(":")[0] == "grad_norm":
            return value
    return None


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))


def _which(ratio: float, known: dict[str, float]) -> str:
    for name, value in known.items():
        if _equal(ratio, value):
            return name
    expected = " or ".join(f"{value:g} ({name})" for name, value in known.items())
    raise _refused("its reduction is unknown: ratio {ratio:.4g}, not {expected}",
                   ratio=ratio, expected=expected)  # fmt: skip


def _refused(words: str, **values: float | str) -> PolicyError:
    return PolicyError.of(
        "cluster.cannot_be_trusted",
        f"This cluster cannot train: {words.format(**values)}.",
        "Update the server, or train on this machine.",
    )
