"""Atelier's sampler compared with transformers' `generate`.

`python -m tests.bench.sampler [--greedy 200]`

--greedy N: greedy tokens in float32 on N prompts, separately and in batches; prints how many are
equal, and at divergences how close the two likeliest tokens were.

Otherwise: tokens per second of 32 concurrent completions (prompt 256, 64 tokens, bfloat16 if the
processor supports it) of both, interleaved, and the ratio: four groups of eight, as in training,
and 32 different prompts.
"""

import argparse
import random
import statistics
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.models import registry
from engine.policy.base import PolicySpec, SampledToken, SampleRequest
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import Sampler
from engine.protocol.config.project import ModelConfig

STARTER = "smollm2-135m-instruct"
SUBJECTS = ["a river", "an engine", "the sea", "a violin", "copper", "the moon", "a bridge"]
TASKS = [
    "Write one line about",
    "Name a property of",
    "Ask a question about",
    "Explain",
    "Rhyme on",
]
TIE = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--greedy", type=int, metavar="N", help="compare greedy tokens instead")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    folder = registry.find_model(STARTER)
    if arguments.greedy:
        compare_greedy(folder, arguments.greedy)
    else:
        for prompts in (4, 32):
            compare_speed(folder, arguments.repeats, prompts)


def ours_of(folder: Path, dtype: str) -> LoraModel:
    model = ModelConfig(name=STARTER, dtype=dtype)  # type: ignore[arg-type]
    spec = PolicySpec(model_path=str(folder), model=model, seed=0, batch_tokens=2048)
    return LoraModel(spec)


def sample(model: LoraModel, requests: list[SampleRequest]) -> list[list[SampledToken]]:
    completions: dict[int, list[SampledToken]] = {n: [] for n in range(len(requests))}
    sampler = Sampler(model, model.eos_tokens, lambda n, token, end: completions[n].append(token))
    for number, request in enumerate(requests):
        sampler.add(number, request)
    while sampler.busy:
        sampler.step()
    return [completions[n] for n in range(len(requests))]


def compare_greedy(folder: Path, count: int) -> None:
    ours = ours_of(folder, "float32")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chance = random.Random(0)
    prompts = [
        tokenizer.apply_chat_template(
            [
                {
                    "role": "user",
                    "content": f"{chance.choice(TASKS)} {chance.choice(SUBJECTS)} ({n}).",
                }
            ],
            add_generation_prompt=True,
        )["input_ids"]
        for n in range(count)
    ]
    references = []
    for prompt in prompts:
        with torch.inference_mode():
            row = theirs.generate(
                torch.tensor([prompt]), do_sample=False, max_new_tokens=32, pad_token_id=0
            )[0]
        references.append(row[len(prompt) :].tolist())
    requests = [
        SampleRequest(tokens=p, max_tokens=32, temperature=0, seed=0, top_logprobs=2)
        for p in prompts
    ]
    in_batch = sample(ours, requests)
    alone = [sample(ours, [request])[0] for request in requests]
    for words, got in (("alone", alone), ("in batches", in_batch)):
        equal = ties = 0
        for completion, reference in zip(got, references, strict=True):
            tokens = [token.token for token in completion]
            if tokens == reference:
                equal += 1
                continue
            place = next(
                i for i, (a, b) in enumerate(zip(tokens, reference, strict=False)) if a != b
            )
            first, second = completion[place].top
            ties += first[1] - second[1] < TIE
        print(f"{words}: {equal} of {count} equal, {ties} part at a tie (within {TIE:g} nats)")


def compare_speed(folder: Path, repeats: int, different: int) -> None:
    ours = ours_of(folder, "auto")
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=ours.dtype).eval()
    chance = random.Random(0)
    batches = []
    for _ in range(repeats + 1):
        prompts = [[chance.randrange(1000, 40_000) for _ in range(256)] for _ in range(different)]
        batches.append([prompt for prompt in prompts for _ in range(32 // different)])
    rates: dict[str, list[float]] = {"ours": [], "generate": []}
    for number, prompts in enumerate(batches):
        requests = [
            SampleRequest(tokens=p, max_tokens=64, seed=n, ignore_eos=True)
            for n, p in enumerate(prompts)
        ]
        started_at = time.perf_counter()
        sample(ours, requests)
        between = time.perf_counter()
        with torch.inference_mode():
            theirs.generate(
                torch.tensor(prompts),
                attention_mask=torch.ones(32, 256, dtype=torch.long),
                do_sample=True,
                top_k=0,
                min_new_tokens=64,
                max_new_tokens=64,
                pad_token_id=0,
            )
        ended = time.perf_counter()
        if number:
            rates["ours"].append(32 * 64 / (between - started_at))
            rates["generate"].append(32 * 64 / (ended - between))
    ratio = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    rated = ", ".join(f"{name} {statistics.median(v):.0f} tokens/s" for name, v in rates.items())
    print(f"{different} different prompts of 32: {rated}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
