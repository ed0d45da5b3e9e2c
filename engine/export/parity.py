"""Comparison of an export with the trained model: measurements in, verdict out. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import ceil, isfinite
from statistics import fmean

from engine.protocol.requests.exports import (
    ExportDtype,
    FilesCheck,
    FirstDifference,
    GreedyMatch,
    Histogram,
    Limits,
    LogprobGap,
    Parity,
    Sameness,
    WeightsCheck,
)

LIMITS: dict[str, Limits] = {
    "float32": Limits(
        largest=1e-4,
        mean=1e-5,
        p99=5e-5,
        tie=2e-4,
        verdict="equal",
        reason="Only the order of float32 sums differs.",
    ),
    "float16": Limits(
        largest=None,
        mean=0.01,
        p99=0.04,
        tie=0.05,
        verdict="equal",
        reason="11-bit mantissa: 4 times the starter model's gap (mean 0.0024, p99 0.0093).",
    ),
    "bfloat16": Limits(
        largest=None,
        mean=0.06,
        p99=0.3,
        tie=0.4,
        verdict="equal",
        reason="8-bit mantissa: 3 times the starter model's gap (mean 0.018, p99 0.097).",
    ),
    "q8_0": Limits(
        largest=None,
        mean=0.08,
        p99=0.6,
        tie=1.0,
        verdict="close",
        reason="8 bits per weight, one scale per 32 weights: never equal, at best close (starter "
        "model: mean 0.07, p99 0.38).",
    ),
}
"""Tolerances by precision of the exported weights, or of the computation if that is coarser."""

ORDER = ("float32", "float16", "bfloat16", "q8_0")
EDGES = [0.0, *(10.0 ** (n / 6) for n in range(-42, 7)), 1000.0]
"""Edges of the histogram in nats, six bins per decade."""

Top = Sequence[Sequence[tuple[int, float]]]


def limits_for(dtype: ExportDtype, computed_in: str) -> Limits:
    """Tolerances of the coarser of two precisions: of the export, and of the computation."""
    return LIMITS[max(dtype, computed_in, key=ORDER.index)]


def logprob_gap(
    reference: Sequence[Sequence[float]], exported: Sequence[Sequence[float]]
) -> LogprobGap:
    """Return absolute differences of log-probs in nats, given by sequence and token. A value that
    is not finite counts as the largest gap. Raises ValueError if tokens differ or are missing."""
    gaps = [
        gap if isfinite(gap := abs(a - b)) else EDGES[-1]
        for one, other in zip(reference, exported, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    if not gaps:
        raise ValueError("no tokens to compare")
    ordered = sorted(gaps)
    counts = [0] * (len(EDGES) - 1)
    for gap in gaps:
        counts[min(len(counts) - 1, bisect_right(EDGES, gap) - 1)] += 1
    return LogprobGap(
        sequences=len(reference),
        tokens=len(gaps),
        mean=fmean(gaps),
        p99=ordered[ceil(0.99 * len(gaps)) - 1],
        largest=ordered[-1],
        histogram=Histogram(edges=EDGES, counts=counts),
    )


def greedy_match(
    prompts: Sequence[Sequence[int]],
    reference: Sequence[Sequence[int]],
    exported: Sequence[Sequence[int]],
    top: Sequence[Top],
    tie: float,
    decode: Callable[[list[int]], str],
) -> GreedyMatch:
    """Compare greedy continuations of prompts by token; `top` has the reference's top log-probs per
    position, `tie` the largest difference that counts as a tie, `decode` turns tokens into text.
    Two models whose log-probs differ by ε may choose different tokens only if the reference has a
    difference below 2 ε between them. That is a tie, after which the texts are not comparable."""
    same = ties = 0
    shown: FirstDifference | None = None
    for row, prompt in enumerate(prompts):
        ours, theirs = reference[row], exported[row]
        place = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)  # noqa: B905
        if place is None and len(ours) == len(theirs):
            same += 1
            continue
        place = min(len(ours), len(theirs)) if place is None else place
        gap = _gap(top[row], place, ours, theirs)
        is_tie = gap is not None and gap <= tie
        ties += is_tie
        if shown is None or (shown.gap is not None and shown.gap <= tie and not is_tie):
            shown = FirstDifference(
                prompt=decode(list(prompt)),
                reference=decode(list(ours)),
                exported=decode(list(theirs)),
                position=place,
                gap=gap,
            )
    return GreedyMatch(prompts=len(prompts), same=same, ties=ties, first=shown)


def verdict_of(
    limits: Limits,
    files: FilesCheck,
    weights: WeightsCheck | None,
    logprobs: LogprobGap | None,
    greedy: GreedyMatch | None,
    same: Sameness | None,
) -> tuple[Parity, list[str]]:
    """Return the verdict on an export and its reasons as sentences; a missing measurement (None) is
    a reason. Exports converted by llama.cpp are `close` at best, since their values were not
    compared one by one."""
    failures = [
        *_files_failures(files),
        *_weights_failures(weights),
        *_logprob_failures(logprobs, limits),
        *_greedy_failures(greedy),
        *_same_failures(same),
    ]
    if failures:
        return "differs", failures
    return ("close" if weights and weights.converted else limits.verdict), failures


def _gap(top: Top, place: int, ours: Sequence[int], theirs: Sequence[int]) -> float | None:
    if place >= len(ours) or place >= len(theirs):
        return None
    likely = dict(top[place])
    if theirs[place] not in likely or ours[place] not in likely:
        return None
    return likely[ours[place]] - likely[theirs[place]]


def _files_failures(files: FilesCheck) -> list[str]:
    if not files.wrong:
        return []
    names = ", ".join(files.wrong[:3])
    return [f"{_counted(files.wrong, 'file')} changed after the export was written: {names}."]


def _counted(found: Sequence[str], noun: str) -> str:
    """Number and noun with its verb: "1 file was", "2 files were"."""
    return f"1 {noun} was" if len(found) == 1 else f"{len(found)} {noun}s were"


def _weights_failures(weights: WeightsCheck | None) -> list[str]:
    if weights is None:
        return ["The weights could not be compared with base + s·B·A."]
    found = []
    if weights.outside:
        found.append(
            f"{weights.outside} of {weights.numbers} weights differ from base + s·B·A, the first "
            f"in {weights.first}."
        )
    if weights.missing:
        found.append(f"{_counted(weights.missing, 'weight')} missing: {weights.missing[0]}.")
    if weights.unexpected:
        found.append(
            f"{_counted(weights.unexpected, 'weight')} unexpected: {weights.unexpected[0]}."
        )
    return found


def _logprob_failures(gap: LogprobGap | None, limits: Limits) -> list[str]:
    if gap is None:
        return ["The log-probs of the exported files could not be computed."]
    measured = (
        ("largest", gap.largest, limits.largest),
        ("mean", gap.mean, limits.mean),
        ("99th percentile of", gap.p99, limits.p99),
    )
    return [
        f"The {name} |Δ log-prob| is {value:.3g} nats; {limit:.3g} are allowed."
        for name, value, limit in measured
        if limit is not None and value > limit
    ]


def _greedy_failures(greedy: GreedyMatch | None) -> list[str]:
    if greedy is None:
        return ["The exported files completed no prompt."]
    strange = greedy.prompts - greedy.same - greedy.ties
    if not strange:
        return []
    return [f"{strange} of {greedy.prompts} prompts have a different completion that is not a tie."]


def _same_failures(same: Sameness | None) -> list[str]:
    if same is None:
        return ["The tokenizer and configuration files could not be read."]
    words = {
        "chat_template": "chat template",
        "tokenizer": "tokenizer",
        "stop_tokens": "stop tokens",
        "config": "configuration",
    }
    return [
        f"The {text} differs from the base model's."
        if name != "stop_tokens"
        else "The stop tokens differ from the base model's."
        for name, text in words.items()
        if not getattr(same, name)
    ]
