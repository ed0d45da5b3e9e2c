"""Merging, writing and checking weights: exports equal base + s·B·A, and the check detects
deviations."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.export.parity import LIMITS, greedy_match, logprob_gap
from engine.export.torch import companion_files
from engine.export.torch.experts import Factors
from engine.export.torch.gguf_file import FILE, write_gguf
from engine.export.torch.llamacpp import convert, find_converter
from engine.export.torch.logprobs import (
    Computing,
    LogProbs,
    Passage,
    greedy_continuations,
    load_exported,
    load_trained,
)
from engine.export.torch.merge import INDEX, BaseWeights, read_adapter, write_merged
from engine.export.torch.serve import ExportServer
from engine.export.torch.vocabulary import read_vocabulary
from engine.export.torch.weights import check_gguf, check_merged
from engine.protocol.problems import ModelError
from engine.protocol.requests.exports import WeightsCheck
from engine.rollout.rendering.chat import ChatFormat
from tests.engine.export.make_run import save_adapter
from tests.engine.export.small_models import make_model

CPU = Computing(device="cpu", dtype="float32")
QUIET: Callable[[int, int], None] = lambda done, total: None  # noqa: E731
MERGED = ("float32", "bfloat16", "float16")
GGUF = (*MERGED, "q8_0")


def write(
    base: Path,
    adapter: dict[str, Factors],
    out: Path,
    kind: str,
    dtype: str,
    shard_bytes: int = 50_000,
) -> Path:
    out.mkdir()
    if kind == "gguf":
        write_gguf(
            BaseWeights(base), adapter, out, dtype, "t", companion_files.stop_tokens(base), QUIET
        )
    else:
        write_merged(BaseWeights(base), adapter, out, getattr(torch, dtype), shard_bytes, QUIET)
        companion_files.write_tokenizer(base, out)
        companion_files.write_config(base, out, dtype)
    return out


def check(
    base: Path, adapter: dict[str, Factors], out: Path, kind: str, dtype: str
) -> WeightsCheck:
    if kind == "gguf":
        return check_gguf(BaseWeights(base), adapter, out / FILE, QUIET)
    return check_merged(BaseWeights(base), adapter, out, dtype, QUIET)


def passages(base: Path) -> list[Passage]:
    exported = []
    with ChatFormat(base) as chat:
        for words in ("Say the thing", "And another one, a bit longer than the other"):
            prompt = chat.encode(chat.render([{"role": "user", "content": words}], []))
            tokens = prompt + chat.encode("That is the answer")
            exported.append(Passage(tokens=tokens, prompt=len(prompt)))
    return exported


def continuations(base: Path, model: torch.nn.Module) -> LogProbs:
    return greedy_continuations(model, passages(base), [2], 8, QUIET)  # type: ignore[arg-type]


LONG = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("Llama", {}),
        ("Llama", {"rope_parameters": LONG}),
        ("Mistral", {}),
        ("Qwen2", {}),
        ("Qwen3", {}),
    ],
)
def test_every_architecture_is_exported_as_gguf(
    architecture: str, settings: dict[str, object], tmp_path: Path
) -> None:
    """Exported files are read by transformers' own reader."""
    base = make_model(tmp_path / "base", architecture, **settings)
    save_adapter(base, tmp_path / "adapter", scale=0.1)
    factors = read_adapter(tmp_path / "adapter", BaseWeights(base))
    out = write(base, factors, tmp_path / "out", "gguf", "float32")
    expected = continuations(base, load_trained(base, tmp_path / "adapter", CPU))
    exported = continuations(base, load_exported(out, "gguf", base, CPU))
    assert logprob_gap(expected.logprobs, exported.logprobs).largest <= 1e-4
    assert check(base, factors, out, "gguf", "float32").good
    assert all(value for _, value in companion_files.compare(base, out, "gguf"))


@pytest.mark.parametrize(
    ("kind", "dtype"), [*(("merged", d) for d in MERGED), *(("gguf", d) for d in GGUF)]
)
def test_each_precision_is_within_its_limits(
    model: Path, adapter: Path, tmp_path: Path, kind: str, dtype: str
) -> None:
    factors = read_adapter(adapter, BaseWeights(model))
    out = write(model, factors, tmp_path / "out", kind, dtype)
    check_result = check(model, factors, out, kind, dtype)
    assert check_result.good
    assert (check_result.adapted, check_result.tensors) == (14, len(BaseWeights(model).names))
    expected = continuations(model, load_trained(model, adapter, CPU))
    exported = continuations(model, load_exported(out, kind, model, CPU))
    gap, limits = logprob_gap(expected.logprobs, exported.logprobs), LIMITS[dtype]
    assert gap.mean <= limits.mean
    assert gap.p99 <= limits.p99
    assert limits.largest is None or gap.largest <= limits.largest
    match = greedy_match(
        [p.tokens for p in passages(model)],
        expected.greedy,
        exported.greedy,
        expected.top,
        limits.tie,
        str,
    )
    assert match.same + match.ties == 2


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("merged", "float32"), ("merged", "float16"), ("gguf", "float32"), ("gguf", "q8_0")],
)
def test_adapter_merged_twice_is_detected_by_the_weights(
    model: Path, faint: Path, tmp_path: Path, kind: str, dtype: str
) -> None:
    once = read_adapter(faint, BaseWeights(model))
    twice = {name: Factors(f.down, f.up, 2 * f.scale) for name, f in once.items()}
    out = write(model, twice, tmp_path / "out", kind, dtype)
    expected = continuations(model, load_trained(model, faint, CPU))
    exported = continuations(model, load_exported(out, kind, model, CPU))
    gap, limits = logprob_gap(expected.logprobs, exported.logprobs), LIMITS[dtype]
    assert gap.mean <= limits.mean, "log-probs alone should not reveal it"
    check_result = check(model, once, out, kind, dtype)
    assert check_result.outside > 0
    assert check_result.first in once
    assert check(model, twice, out, kind, dtype).good


def test_single_changed_number_is_detected(model: Path, adapter: Path, tmp_path: Path) -> None:
    factors = read_adapter(adapter, BaseWeights(model))
    out = write(model, factors, tmp_path / "out", "merged", "bfloat16")
    shards = sorted(out.glob("*.safetensors"))
    index = json.loads((out / INDEX).read_text())
    assert len(shards) == len(set(index["weight_map"].values())) > 2
    tensors = load_file(shards[-1])
    name = next(name for name in tensors if "norm" in name)
    tensors[name][3] = torch.nextafter(tensors[name][3], torch.tensor(9.0, dtype=torch.bfloat16))
    save_file(tensors, shards[-1])
    check_result = check(model, factors, out, "merged", "bfloat16")
    assert (check_result.outside, check_result.first) == (1, name)
    shards[0].unlink()
    assert check(model, factors, out, "merged", "bfloat16").missing


def test_overflowing_number_is_rejected(model: Path, adapter: Path, tmp_path: Path) -> None:
    factors = {
        n: Factors(f.down, f.up, 1e8) for n, f in read_adapter(adapter, BaseWeights(model)).items()
    }
    for kind in ("merged", "gguf"):
        with pytest.raises(ModelError, match="does not fit into float16"):
            write(model, factors, tmp_path / kind, kind, "float16")


def test_non_plain_lora_adapters_are_rejected(model: Path, adapter: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(adapter, tmp_path / "copy"))
    config = json.loads((copy / "adapter_config.json").read_text())
    for change in ({"use_dora": True}, {"use_rslora": True}, {"bias": "all"}, {"peft_type": "IA3"}):
        (copy / "adapter_config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ModelError, match="not plain LoRA"):
            read_adapter(copy, BaseWeights(model))


def test_vocabulary_rule_follows_the_pre_tokenizer(model: Path, tmp_path: Path) -> None:
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    from engine.export.torch import vocabulary

    split = pre_tokenizers.Split
    byte_level_without_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for steps, name in (
        ([byte_level], "gpt-2"),
        ([pre_tokenizers.Digits(individual_digits=True), byte_level], "smollm"),
        *(
            ([split(Regex(pattern), "isolated"), byte_level_without_regex], name)
            for (pattern, *rest), name in vocabulary.RULES.items()
            if not rest and pattern != "bytes"
        ),
    ):
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        exported = read_vocabulary(tmp_path, 300)
        assert exported.rule == name
        assert exported.tokens[299] == "[PAD299]"
        assert exported.merges[0] == "t h"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="unknown rule"):
        read_vocabulary(tmp_path, 300)


CONVERTER = """
import json, sys
from pathlib import Path
_, merged, _, outfile, _, outtype = sys.argv
if outtype == "q8_0":
    sys.exit("Model StarfishForCausalLM is not supported")
sys.path.insert(0, {root!r})
from engine.export.torch.gguf_file import write_gguf
from engine.export.torch.merge import BaseWeights
config = Path(merged) / "config.json"
about = json.loads(config.read_text()) | {{"architectures": ["LlamaForCausalLM"]}}
config.write_text(json.dumps(about))
out = Path(outfile).parent
write_gguf(BaseWeights(Path(merged)), {{}}, out, "float16", "t", [2], lambda done, total: None)
"""


def test_other_architectures_use_the_llama_cpp_converter(
    model: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stub of the converter script with its arguments; its input is checked as a merge."""
    base, out = Path(shutil.copytree(model, tmp_path / "base")), tmp_path / "out"
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(
        json.dumps(config | {"architectures": ["StarfishForCausalLM"]})
    )
    work, script = tmp_path / "work", tmp_path / "convert_hf_to_gguf.py"
    out.mkdir()
    work.mkdir()
    message = {
        "base": str(base), "adapter": str(adapter), "out": str(out), "work": str(work),
        "dtype": "float16", "format": "gguf", "title": "t",
    }  # fmt: skip
    server, other = (ExportServer(end) for end in socket.socketpair())
    server._number = other._number = 1
    monkeypatch.setenv("ATELIER_LLAMA_CPP", str(tmp_path))
    assert find_converter() is None
    with pytest.raises(ModelError, match=r"StarfishForCausalLM is not one of .*ATELIER_LLAMA_CPP"):
        server._op_build(message)
    script.write_text(CONVERTER.format(root=str(Path(__file__).parents[3])))
    assert find_converter() == script
    assert set(server._op_build(message)["files"]) == {FILE, "Modelfile"}
    check_result = WeightsCheck.model_validate(other._op_weights(message))
    assert check_result.good
    assert check_result.converted
    expected = continuations(base, load_trained(base, adapter, CPU))
    exported = continuations(base, load_exported(out, "gguf", base, CPU))
    assert logprob_gap(expected.logprobs, exported.logprobs).mean <= LIMITS["float16"].mean
    with pytest.raises(ModelError, match=r"Starfish.* is not supported"):
        convert(script, base, tmp_path / "x.gguf", "q8_0")
    for one in (server, other):
        one._line.close()


def test_llama3_rope_factors_equal_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from engine.export.torch.gguf_file import rope_factors

    scaling = {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=2, rope_parameters=scaling,
        max_position_embeddings=131072,
    )  # fmt: skip
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    unscaled = 1 / 500000.0 ** (torch.arange(0, 128, 2) / 128)
    factors = rope_factors(config)
    assert factors is not None
    torch.testing.assert_close(unscaled / torch.from_numpy(factors), scaled, rtol=1e-5, atol=0)
