"""Check of adapter gradients from prefix trees against padded rows.

The reference is plain transformers attention, PEFT's LoRA, full logits and autograd.
"""

import gc
import random
from collections.abc import Callable
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.bench.compare import difference, named
from engine.bench.gpu.report import NONE, Job, Outcome, Table, gib, tiny
from engine.bench.suite import plain_tokens
from engine.models.file_checks import shape_counts
from engine.policy.base import PolicySpec, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel, free_bytes, pick_device, pick_dtype
from engine.policy.torch.training.trainer import forward_backward
from engine.protocol.config.algorithm import Algorithm, NoCorrection
from engine.protocol.config.project import ModelConfig

TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-1}
"""Largest relative (Frobenius) difference over all matrices. float32 is as stated in the README; in
bfloat16 both sides differ by about 5e-2 from float32."""
ROUNDINGS = 3.0
"""Tolerance as a multiple of the difference between the `sdpa` and `eager` attention of
transformers, which is pure rounding. Used if larger than TOLERANCE, for deep models."""
AS_GOOD = 1.5
"""Largest error of trees in bfloat16, relative to that of padded rows, both against float32."""
PROMPT, ANSWER, GROUP, GROUPS = 48, 12, 4, 2
NOISE = 0.01
"""Initial noise of both adapter matrices: B starts at 0, which would zero the gradient of A."""

Gradients = dict[str, Tensor]


def run(job: Job, say: Callable[[str], None]) -> Outcome:
    """Compare adapter gradients from prefix trees with those from padded rows by transformers and
    PEFT; fails if a difference exceeds its tolerance. `say` receives progress."""
    model, device = Path(job.model), pick_device()
    batch = work(plain_tokens(model))
    needed = 4 * 1.5 * shape_counts(model)["parameters"]
    wanted = ["float32"] if needed < free_bytes(device) else []
    wanted += ["bfloat16"] if pick_dtype("auto", device) == torch.bfloat16 else []
    if not wanted:
        return Outcome(
            state="skipped",
            words=f"Gradients in float32 need {gib(needed)} of memory, but only "
            f"{gib(free_bytes(device))} are free.",
        )
    trees, rows, floors = {}, {}, {}
    for name in wanted:
        say(f"{name}: trees")
        trees[name], adapter = by_trees(job.model, name, batch)
        say(f"{name}: padded rows")
        rows[name], eager = by_rows(job.model, name, batch, adapter)
        floors[name] = difference(eager, rows[name])
    apart = {name: difference(trees[name], rows[name]) for name in wanted}
    exact = rows.get("float32")
    most = {name: max(TOLERANCE[name], ROUNDINGS * floors[name]) for name in wanted}
    wrong = [name for name in wanted if not apart[name] <= most[name]]
    wrong += [name for name in wanted if exact and not _as_good(exact, trees[name], rows[name])]
    differences = ", ".join(f"{tiny(value)} in {name}" for name, value in apart.items())
    return Outcome(
        state="failed" if wrong else "passed",
        words=f"Gradients of prefix-tree and padded batches differ by {differences}.",
        figures={f"gradient_{name}_error": value for name, value in apart.items()},
        tables=[
            Table(
                title="Gradients of prefix trees",
                head=[
                    *("precision", "trees vs. padded rows", "at most", "eager vs. padded rows"),
                    *("trees vs. float32", "padded rows vs. float32"),
                ],
                rows=[
                    [
                        name,
                        tiny(apart[name]),
                        tiny(most[name]),
                        tiny(floors[name]),
                        _to(exact, trees[name], name),
                        _to(exact, rows[name], name),
                    ]
                    for name in wanted
                ],
                note=f"{GROUPS} groups of {GROUP}, prompt {PROMPT}, completions up to {ANSWER}; "
                "relative (Frobenius) difference of the adapter's gradients. Padded rows are "
                "computed by transformers and PEFT, without Atelier's code. Eager attention on the "
                "same rows differs by rounding alone. In bfloat16, the error of trees against "
                f"float32 may be up to {AS_GOOD} times that of padded rows."
                + ("" if exact else " Not computed in float32: too little memory."),
            )
        ],
    )


def work(words: list[int]) -> TrainBatch:
    """Groups of unequal lengths of random token ids from `words`, with advantages of both signs."""
    chance = random.Random(0)
    items = []
    for _ in range(GROUPS):
        prompt = chance.choices(words, k=PROMPT)
        for sibling in range(GROUP):
            answer = chance.choices(words, k=ANSWER - 3 * sibling)
            items.append(
                TrainItem(
                    tokens=prompt + answer,
                    spans=[(PROMPT, PROMPT + len(answer))],
                    logprobs=[0.0] * len(answer),
                    advantages=[chance.uniform(-1, 1)] * len(answer),
                )
            )
    count = sum(len(item.advantages) for item in items)
    return TrainBatch(items=items, algorithm=Algorithm(correction=NoCorrection()), normaliser=count)


def by_trees(model: str, dtype: str, batch: TrainBatch) -> tuple[Gradients, Gradients]:
    """Return gradients by the trainer of Atelier, and the randomly initialised adapter they belong
    to. `model` is a folder, `dtype` the precision of its weights."""
    config = ModelConfig(name=model, dtype=dtype)  # type: ignore[arg-type]
    loaded = LoraModel(PolicySpec(model_path=model, model=config, seed=0, batch_tokens=4096))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in loaded.adapter.values():
            parameter.add_(NOISE * torch.randn(parameter.shape, generator=generator).to(parameter))
    forward_backward(loaded, batch, 4096, lambda done, total: None)
    found = _gradients(loaded.adapter)
    adapter = named({name: p.detach().cpu() for name, p in loaded.adapter.items()})
    del loaded
    _free()
    return found, adapter


def by_rows(
    model: str, dtype: str, batch: TrainBatch, adapter: Gradients
) -> tuple[Gradients, Gradients]:
    """Return gradients of the same `adapter` by transformers and PEFT on padded rows: with `sdpa`,
    and with `eager` attention."""
    device, config = pick_device(), ModelConfig()
    base = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
    ).to(device)
    lora = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    trained = get_peft_model(base, lora).eval()
    learned = {name: p for name, p in trained.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, parameter in named(learned).items():
            parameter.copy_(adapter[name])
    found = []
    for attention in ("sdpa", "eager"):
        base.set_attn_implementation(attention)
        trained.zero_grad(set_to_none=True)
        _loss(trained, batch, device).backward()  # type: ignore[no-untyped-call]
        found.append(_gradients(learned))
    del base, trained, learned
    _free()
    return found[0], found[1]


def _loss(trained: torch.nn.Module, batch: TrainBatch, device: torch.device) -> Tensor:
    """−Σ advantage · log-prob over the trained tokens, divided by the normaliser."""
    longest = max(len(item.tokens) for item in batch.items)
    tokens_BT = torch.zeros(len(batch.items), longest, dtype=torch.long)
    seen_BT, worth_BT = torch.zeros_like(tokens_BT), torch.zeros(tokens_BT.shape)
    for row, item in enumerate(batch.items):
        tokens_BT[row, : len(item.tokens)] = torch.tensor(item.tokens)
        seen_BT[row, : len(item.tokens)] = 1
        (span,) = item.spans
        worth_BT[row, slice(*span)] = torch.tensor(item.advantages)
    tokens_BT, seen_BT, worth_BT = (t.to(device) for t in (tokens_BT, seen_BT, worth_BT))
    logits_BTV = trained(input_ids=tokens_BT, attention_mask=seen_BT).logits[:, :-1].float()
    logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, tokens_BT[:, 1:, None]).squeeze(-1)
    return -(logprobs_BT * worth_BT[:, 1:]).sum() / batch.normaliser


def _gradients(parameters: dict[str, torch.nn.Parameter]) -> Gradients:
    return named(
        {n: p.grad.detach().float().cpu() for n, p in parameters.items() if p.grad is not None}
    )


def _as_good(exact: Gradients, trees: Gradients, rows: Gradients) -> bool:
    """Whether trees have no larger rounding error than padded rows (True for the reference)."""
    if rows is exact:
        return True
    return difference(trees, exact) <= AS_GOOD * difference(rows, exact)


def _to(exact: Gradients | None, found: Gradients, name: str) -> str:
    return NONE if exact is None or name == "float32" else tiny(difference(found, exact))


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
