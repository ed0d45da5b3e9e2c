"""Cost of grammars per sampled token, with a vocabulary of 150 000 tokens.

`python -m tests.bench.grammar [--rows 32] [--tokens 64]`

Makes a random model with a byte-level vocabulary of random words, and prints, for several grammars:
time of compilation (first, and cached), milliseconds per decode step of all rows with and without
the grammar (the same forced tokens per step), microseconds of one mask and one acceptance, and the
time of a training pass with and without masks.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM

from engine.policy.base import PolicySpec, SampledToken, SampleRequest, TrainBatch, TrainItem
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import Row, Sampler, draw
from engine.policy.torch.training.trainer import forward_backward
from engine.protocol.config.project import ModelConfig

VOCABULARY = 150_000
HIDDEN = 576
LETTERS = 'abcdefghijklmnopqrstuvwxyzĠ{}[]":,.-0123456789'
OBJECT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "size": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "size", "tags"],
}
WIDE = {"type": "object", "properties": {f"field{n}": {"type": "string"} for n in range(100)}}
FORMS: dict[str, dict[str, Any]] = {
    "any text": {"type": "any_text"},
    "JSON object of 3 fields": {"type": "json_schema", "json_schema": OBJECT},
    "JSON object of 100 fields": {"type": "json_schema", "json_schema": WIDE},
    "regular expression": {"type": "regex", "pattern": "[a-z ]{1,500}"},
    "tool call after text": {
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": [
            {
                "type": "tag",
                "begin": "<tool_call>",
                "content": {"type": "json_schema", "json_schema": OBJECT},
                "end": "</tool_call>",
            }
        ],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        free_ms = step_ms(model, None, arguments.rows, arguments.tokens)
        print(f"{arguments.rows} rows without grammar: {free_ms:.1f} ms per step")
        for name, form in FORMS.items():
            compare(model, name, form, arguments.rows, arguments.tokens, free_ms)
        compare_training(model)


def make_model(folder: Path) -> LoraModel:
    chance = random.Random(0)
    words = dict.fromkeys(["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())])
    while len(words) < VOCABULARY:
        words["".join(chance.choices(LETTERS, k=chance.randint(2, 7)))] = None
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=9,
        num_key_value_heads=3,
        eos_token_id=0,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    spec = PolicySpec(
        model_path=str(folder), model=ModelConfig(dtype="float32"), seed=0, batch_tokens=4096
    )
    return LoraModel(spec)


def compare(
    model: LoraModel, name: str, form: dict[str, Any], rows: int, tokens: int, free_ms: float
) -> None:
    grammar = json.dumps({"type": "structural_tag", "format": form})
    times = []
    for _ in range(2):
        start_s = time.perf_counter()
        model.grammars.compile(grammar)
        times.append(time.perf_counter() - start_s)
    bound_ms = step_ms(model, grammar, rows, tokens)
    mask_us, accept_us = match_us(model, grammar)
    draw_ms = draw_cost_ms(model, grammar, rows)
    print(
        f"{name}: compiled in {times[0] * 1e3:.0f} ms (cached {times[1] * 1e3:.2f} ms), "
        f"{bound_ms:.1f} ms per step ({1e3 * (bound_ms - free_ms) / rows:+.0f} µs per token), of "
        f"which mask {mask_us:.0f} µs, acceptance {accept_us:.0f} µs, masking of logits "
        f"{1e3 * draw_ms / rows:.0f} µs per token"
    )


def step_ms(model: LoraModel, grammar: str | None, rows: int, tokens: int) -> float:
    """Median time of a decode step in milliseconds, scaled to all rows."""
    sampler = Sampler(model, [], lambda number, token, finish: None)
    for number in range(rows):
        sampler.add(
            number, SampleRequest(tokens=[5, 6], max_tokens=tokens, seed=number, grammar=grammar)
        )
    times = []
    while sampler.busy:
        start_s = time.perf_counter()
        sampler.step()
        if len(sampler._running) > rows / 2:  # completions may end early
            times.append((time.perf_counter() - start_s) * rows / len(sampler._running))
    return 1e3 * statistics.median(times[1:] or times)


def match_us(model: LoraModel, grammar: str) -> tuple[float, float]:
    """Mean microseconds of a mask and of an acceptance, over sampled completions."""
    mask_s = accept_s = 0.0
    count = 0
    for completion in completions(model, grammar, 4):
        matcher = model.grammars.matcher(model.grammars.compile(grammar))
        for token in completion:
            start_s = time.perf_counter()
            matcher.mask()
            middle_s = time.perf_counter()
            matcher.accept(token.token)
            mask_s, accept_s = (
                mask_s + middle_s - start_s,
                accept_s + time.perf_counter() - middle_s,
            )
            count += 1
    return 1e6 * mask_s / count, 1e6 * accept_s / count


def draw_cost_ms(model: LoraModel, grammar: str, rows: int) -> float:
    """Median milliseconds that masks add to one drawing of all rows."""
    logits_BV = torch.randn(rows, VOCABULARY)
    mask_W = model.grammars.matcher(model.grammars.compile(grammar)).mask()
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(10):
        for masked in (True, False):
            drawn = [
                Row(n, SampleRequest(tokens=[5], max_tokens=1, seed=n), frozenset())
                for n in range(rows)
            ]
            for row in drawn if masked else []:
                row.mask_W = mask_W
            start_s = time.perf_counter()
            draw(logits_BV, drawn)
            times[masked].append(time.perf_counter() - start_s)
    return 1e3 * (statistics.median(times[True]) - statistics.median(times[False]))


def completions(model: LoraModel, grammar: str, count: int) -> list[list[SampledToken]]:
    found: dict[int, list[SampledToken]] = {n: [] for n in range(count)}
    sampler = Sampler(model, [], lambda number, token, finish: found[number].append(token))
    for number in found:
        sampler.add(
            number, SampleRequest(tokens=[5, 6], max_tokens=64, seed=number, grammar=grammar)
        )
    while sampler.busy:
        sampler.step()
    return [found[n] for n in range(count)]


def compare_training(model: LoraModel) -> None:
    form = FORMS["JSON object of 3 fields"]
    grammar = json.dumps({"type": "structural_tag", "format": form})
    items = [
        TrainItem(
            tokens=[5, 6, *(token.token for token in completion)],
            spans=[(2, 2 + len(completion))],
            logprobs=[token.logprob for token in completion],
            advantages=[1.0] * len(completion),
            grammars=[(0, grammar)],
        )
        for completion in completions(model, grammar, 16)
    ]
    free = [item.model_copy(update={"grammars": []}) for item in items]
    total = sum(len(item.logprobs) for item in items)
    times: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(4):
        for name, batch in (("with", items), ("without", free)):
            start_s = time.perf_counter()
            train = TrainBatch(items=batch, normaliser=total)
            forward_backward(model, train, 4096, lambda done, total: None)
            times[name].append(time.perf_counter() - start_s)
    with_s, without_s = (statistics.median(values[1:]) for values in times.values())
    print(
        f"training pass over {total} tokens: {with_s:.2f} s with masks, {without_s:.2f} s without "
        f"({1e6 * (with_s - without_s) / total:+.0f} µs per token)"
    )


if __name__ == "__main__":
    main()
