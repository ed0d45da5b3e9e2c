"""Conversion of a byte-level BPE tokenizer to GGUF metadata.

llama.cpp splits text into words by a named rule (`tokenizer.ggml.pre`). The name is chosen by the
pre-tokenizer in tokenizer.json, so that the same text gives the same tokens (llama.cpp,
src/llama-vocab.cpp).
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer

from engine.models.file_checks import chat_template, read_json
from engine.protocol.problems import ModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
RULES = {
    ("bytes",): "gpt-2",
    ("digits", "bytes"): "smollm",
    (_CONTRACTIONS + _WORDS + r"|\p{N}{1,3}" + _REST,): "llama-bpe",
    (_CONTRACTIONS + _WORDS + r"|\p{N}" + _REST,): "qwen2",
    (_TEKKEN,): "tekken",
}
"""Pre-tokenizer steps → llama.cpp's name. `bytes` is ByteLevel with GPT-2's pattern."""


class Vocabulary(NamedTuple):
    tokens: list[str]
    types: list[int]
    merges: list[str]
    rule: str


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Read `size` tokens of a tokenizer; ids that it does not define are marked as unused. Raises
    ModelError for tokenizers that are not byte-level BPE with a known rule."""
    about = json.loads((folder / "tokenizer.json").read_text())
    model = about["model"]
    if model.get("type") != "BPE":
        raise _unknown(f"its tokenizer is {model.get('type')}, not byte-level BPE")
    tokens = [f"[PAD{number}]" for number in range(size)]
    types = [int(TokenType.UNUSED)] * size
    for token, number in model["vocab"].items():
        tokens[number], types[number] = token, int(TokenType.NORMAL)
    for added in about["added_tokens"]:
        kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    if not merges:
        raise _unknown("its tokenizer has no merges, which llama.cpp does not load")
    return Vocabulary(tokens, types, merges, _rule(about))


def add_vocabulary(writer: GGUFWriter, folder: Path, size: int, stops: list[int]) -> None:
    """Add the tokenizer to a GGUF file. `stops` are stop token ids, the usual one first."""
    vocabulary = read_vocabulary(folder, size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.rule)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    config = read_json(folder / "tokenizer_config.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    named = {name: _id(tokenizer, config.get(f"{name}_token")) for name in ("bos", "pad", "unk")}
    for name, number in named.items():
        if number is not None:
            getattr(writer, f"add_{name}_token_id")(number)
    if stops:
        writer.add_eos_token_id(stops[0])
    if len(stops) > 1:
        writer.add_eot_token_id(stops[1])
    dressed = tokenizer.encode("a", add_special_tokens=True).ids
    writer.add_add_bos_token(dressed[0] == named["bos"])
    writer.add_add_eos_token(dressed[-1] in stops)
    writer.add_chat_template(chat_template(folder))


def _id(tokenizer: Tokenizer, token: Any) -> int | None:
    text = token.get("content") if isinstance(token, dict) else token
    number: int | None = tokenizer.token_to_id(text) if text else None
    return number


def _rule(about: dict[str, Any]) -> str:
    step = about["pre_tokenizer"] or {}
    steps = step["pretokenizers"] if step.get("type") == "Sequence" else [step]
    found = tuple(filter(None, map(_step, steps)))
    if found not in RULES or steps[-1].get("type") != "ByteLevel":
        raise _unknown("its tokenizer has an unknown rule for splitting words")
    return RULES[found]


def _step(step: dict[str, Any]) -> str:
    """Return the name of a pre-tokenizer step in RULES; empty for ByteLevel without a pattern,
    which splits nothing."""
    match step:
        case {"type": "ByteLevel", "use_regex": False}:
            return ""
        case {"type": "ByteLevel"}:
            return "bytes"
        case {"type": "Digits", "individual_digits": True}:
            return "digits"
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}:
            return str(pattern)
    return f"? {step.get('type')}"


def _unknown(why: str) -> ModelError:
    return ModelError.of(
        "export.gguf_tokenizer",
        f"This model cannot be written as GGUF here: {why}.",
        "Set ATELIER_LLAMA_CPP to a llama.cpp checkout: its converter supports more models.",
    )
