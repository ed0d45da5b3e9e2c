"""Check of tree attention against a dense mask in float64, forward and backward, with timing.

Shapes: S tokens of the row, Q query heads, K key-value heads, D numbers per head.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.bench.gpu.report import Job, Outcome, Table, seconds, times, tiny
from engine.policy.torch.model.model import pick_device, pick_dtype
from engine.policy.torch.model.scoring import Scoring
from engine.policy.torch.training.prefix_tree import Forest, TreePlan, grow

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Largest relative (Frobenius) difference to float64 of output and gradients: several times the
rounding error, and a hundredth of the error of TF32 in float32."""
HEADS, KEY_HEADS, SIZE = 8, 2, 64
WINDOWS = (None, 48)
REPEATS = 5


class Work(NamedTuple):
    """Dimensions of a group of sequences."""

    prompt: int
    completion: int
    group: int

    @property
    def sequences(self) -> list[list[int]]:
        """Sequences of unequal lengths, two of which share the beginning of their completions."""
        stem = list(range(self.prompt))
        return [
            [*stem, 7 if n < 2 else 10 + n, *range(n, n + self.completion - n)]
            for n in range(self.group)
        ]


def run(job: Job, say: Callable[[str], None]) -> Outcome:
    """Compare tree attention with a dense mask in float64, in all precisions and with and without a
    sliding window; fails if an output or gradient differs by more than its tolerance. `say`
    receives progress."""
    device = pick_device()
    forest = grow(Work(96, 40, 6).sequences)
    kinds = dict.fromkeys((torch.float32, pick_dtype("auto", device)))
    figures: dict[str, float] = {}
    rows, wrong = [], []
    for dtype in kinds:
        for window in WINDOWS:
            say(f"{_word(dtype)}, {f'window {window}' if window else 'no window'}")
            apart = difference(forest, dtype, device, window)
            label = f"{_word(dtype)}{f', window {window}' if window else ''}"
            figures[f"attention_{_word(dtype)}_{window or 'all'}_error"] = max(apart)
            rows.append([label, *map(tiny, apart), tiny(TOLERANCE[dtype])])
            wrong += [label] if not max(apart) <= TOLERANCE[dtype] else []
    timed, table = _timed(device, list(kinds)[-1], job)
    head = ["precision", "output", "gradient of queries", "of keys", "of values", "at most"]
    note = "Relative (Frobenius) difference to dense-mask attention in float64."
    result = "all differences are within their tolerances"
    if wrong:
        result = f"the difference is too large for {'; '.join(wrong)}"
    return Outcome(
        state="failed" if wrong else "passed",
        words=f"Compared with dense-mask attention in float64, {result}.",
        figures=figures | timed,
        tables=[Table(title="Attention over prefix trees", head=head, rows=rows, note=note), table],
    )


def difference(
    forest: Forest, dtype: torch.dtype, device: torch.device, window: int | None
) -> list[float]:
    """Relative differences of tree attention to a dense mask in float64, on random inputs: of the
    output, and of the gradients of queries, keys and values. `window` None: full attention."""
    generator = torch.Generator().manual_seed(0)
    count = forest.tokens
    made = [
        torch.randn(heads, count, SIZE, generator=generator, dtype=torch.float64)
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    ]
    pull = torch.randn(count, HEADS, SIZE, generator=generator, dtype=torch.float64)
    given = [one.to(dtype) for one in made]  # both begin from the same rounded numbers
    own = _results(
        lambda q, k, v: TreePlan(forest, device).attend(0, q, k, v, Scoring(SIZE**-0.5, window)),
        [one.to(device) for one in given],
        pull.to(device, dtype),
    )
    mask = seen(forest, window)
    exact = _results(
        lambda q, k, v: dense(q, k, v, mask),
        [one.double() for one in given],
        pull.to(dtype).double(),
    )
    return [
        float((a.cpu().double() - b).norm() / b.norm()) for a, b in zip(own, exact, strict=True)
    ]


def _results(
    work: Callable[..., Tensor], given: list[Tensor], pull_SQD: Tensor
) -> tuple[Tensor, ...]:
    inputs = [one.clone().requires_grad_() for one in given]
    out = work(*inputs)
    return (out.detach(), *torch.autograd.grad(out, inputs, pull_SQD))


def dense(query_QSD: Tensor, key_KSD: Tensor, value_KSD: Tensor, mask_SS: Tensor) -> Tensor:
    """Return attention with a dense mask for all heads, [S, Q, D]."""
    groups = query_QSD.shape[0] // key_KSD.shape[0]
    wide = key_KSD.repeat_interleave(groups, 0), value_KSD.repeat_interleave(groups, 0)
    keys, values = (one[None] for one in wide)
    out = scaled_dot_product_attention(query_QSD[None], keys, values, attn_mask=mask_SS)
    return out[0].transpose(0, 1)


def seen(forest: Forest, window: int | None) -> Tensor:
    """Return the mask [S, S] of a forest: True where a token attends to an earlier one (or itself)
    of the same sequence, at most `window` − 1 tokens back (None: any)."""
    mask = torch.zeros(forest.tokens, forest.tokens, dtype=torch.bool)
    for places in forest.places:
        path = torch.tensor(places)
        own = torch.ones(len(places), len(places), dtype=torch.bool).tril()
        mask[path[:, None], path] |= own.triu(1 - window) if window else own
    return mask


def _timed(device: torch.device, dtype: torch.dtype, job: Job) -> tuple[dict[str, float], Table]:
    """Time forward and backward of one layer: segments, one dense mask, and padded rows."""
    work = Work(128, 32, 4) if job.quick else Work(1024, 256, 8)
    forest = grow(work.sequences)
    rows, longest = len(forest.ends), max(map(len, forest.places))
    plan, mask = TreePlan(forest, device), seen(forest, None).to(device)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, SIZE, device=device, dtype=dtype, requires_grad=True)

    query, key, value = (made(heads, forest.tokens) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
    rectangle = [made(rows, HEADS, longest) for _ in range(3)]
    one, two, three = rectangle
    layers: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
        "segments": (
            lambda: plan.attend(0, query, key, value, Scoring(SIZE**-0.5)),
            [query, key, value],
        ),
        "dense": (lambda: dense(query, key, value, mask), [query, key, value]),
        "padded": (
            lambda: scaled_dot_product_attention(one, two, three, is_causal=True),
            rectangle,
        ),
    }
    taken = {name: _median_s(layer, given, device) for name, (layer, given) in layers.items()}
    words = {
        "segments": "prefix tree in segments",
        "dense": "prefix tree with one dense mask",
        "padded": "padded rows, causal kernel",
    }
    return {f"attention_{name}_s": value for name, value in taken.items()}, Table(
        title="Attention of one layer, forward and backward",
        head=["", "time", "× segments"],
        rows=[[words[n], seconds(s), times(s / taken["segments"])] for n, s in taken.items()],
        note=f"{_word(dtype)}; prompt {work.prompt}, completions up to "
        f"{work.completion + 1}, {work.group} rollouts per group, {HEADS} heads of {SIZE}. "
        "Only attention is measured; a prefix tree computes the shared prompt once in all other "
        "layers, too.",
    )


def _median_s(work: Callable[[], Tensor], given: list[Tensor], device: torch.device) -> float:
    laps = []
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        torch.autograd.grad(work().sum(), given)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        laps.append(time.perf_counter() - start_s)
    return statistics.median(laps[1:])


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
