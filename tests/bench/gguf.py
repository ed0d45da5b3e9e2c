"""GGUF export compared with the trained model.

`python -m tests.bench.gguf [--prompts 100]`

The starter with a large random adapter: greedy text of the adapter (transformers and peft, not
merged) against that of the GGUF file, read by transformers and by llama.cpp (in an environment of
its own). Prints how many prompts get equal responses, and whether llama.cpp tokenizes text
equally.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from engine.environments import python_of
from engine.export.torch import companion_files
from engine.export.torch.gguf_file import FILE, write_gguf
from engine.export.torch.logprobs import (
    Passage,
    greedy_continuations,
    load_exported,
    load_trained,
    pick_computing,
)
from engine.export.torch.merge import BaseWeights, read_adapter
from engine.models.registry import find_model
from engine.rollout.rendering.chat import ChatFormat
from tests.engine.export.make_run import save_adapter

WORKER = Path(__file__).with_name("llamacpp_worker.py")
SUBJECTS = ["a river", "an engine", "the sea", "a violin", "copper", "the moon", "a bridge"]
TASKS = ["Write one line about", "Name a property of", "Ask about", "Explain", "Rhyme on"]
TEXTS = [
    *companion_files.PROBES,
    "3.14 12345  12   7\n\n\t8",
    "I'll say: \"it's 100% don't\" — naïve café №5",
    "<|im_start|>user\nhi<|im_end|>\n",
    "def f(x):\n    return x**2  # ²",
]
SCALE = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--new", type=int, default=24, help="tokens of each answer at most")
    parser.add_argument("--dtype", default="float16")
    arguments = parser.parse_args()
    base = find_model("smollm2-135m-instruct")
    with tempfile.TemporaryDirectory() as scratch:
        compare(base, Path(scratch), arguments)


def compare(base: Path, folder: Path, arguments: argparse.Namespace) -> None:
    adapter, out = folder / "adapter", folder / "out"
    out.mkdir()
    save_adapter(base, adapter, SCALE)
    passages, chat = prompts(base, arguments.prompts)
    stops, computing = companion_files.stop_tokens(base), pick_computing(base)
    write_gguf(
        BaseWeights(base),
        read_adapter(adapter, BaseWeights(base)),
        out,
        arguments.dtype,
        "bench",
        stops,
        quiet,
    )
    companion_files.write_tokenizer(base, out)
    most = arguments.new
    trained = load_trained(base, adapter, computing)
    reference = greedy_continuations(trained, passages, stops, most, quiet).greedy
    exported = load_exported(out, "gguf", base, computing)
    report(
        "transformers",
        reference,
        greedy_continuations(exported, passages, stops, most, quiet).greedy,
    )
    request = {"prompts": [p.tokens for p in passages], "texts": TEXTS, "most_new": most}
    done = subprocess.run(
        [str(python_of("llamacpp")), "-I", str(WORKER), str(out / FILE)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    outputs = json.loads(done.stdout)
    report(
        "llama.cpp",
        [without_stop_token(one, stops) for one in reference],
        [without_stop_token(a, stops) for a in outputs["answers"]],
    )
    ours = [chat.encode(text) for text in TEXTS]
    equal = sum(a == b for a, b in zip(ours, outputs["tokens"], strict=True))
    print(f"llama.cpp splits {equal} of {len(TEXTS)} texts into the same tokens")


def prompts(base: Path, count: int) -> tuple[list[Passage], ChatFormat]:
    chat = ChatFormat(base)
    passages = []
    for n in range(count):
        words = f"{TASKS[n % 5]} {SUBJECTS[n % 7]} ({n})."
        tokens = chat.encode(chat.render([{"role": "user", "content": words}], []))
        passages.append(Passage(tokens=tokens, prompt=len(tokens)))
    return passages, chat


def report(who: str, reference: list[list[int]], answers: list[list[int]]) -> None:
    same = sum(a == b for a, b in zip(reference, answers, strict=True))
    print(f"{who}: {same} of {len(reference)} prompts answered alike ({same / len(reference):.0%})")


def without_stop_token(tokens: list[int], stops: list[int]) -> list[int]:
    """Remove the stop token, which llama.cpp does not return."""
    return tokens[:-1] if tokens and tokens[-1] in stops else tokens


def quiet(done: int, total: int) -> None:
    """Report no progress."""


if __name__ == "__main__":
    main()
