"""Model families: small tokenizers with a family's real special tokens, under its real chat
template.

The templates come from the installed wheel of trl, which ships those of many models as files.
"""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = re.compile(
    r"<\|\"\|>|<\|[^\s'\"{}<>|]+\|>|<｜[^｜\s]+｜>|</?[a-z_]+>|<[a-z_]+\|>|<\|[a-z_]+>"
)
"""Texts in a template that are tokens of their own."""
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
        "</tool_call>", "<tool_response>", "</tool_response>"]  # fmt: skip
LLAMA = ["<|end_of_text|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|python_tag|>"]  # fmt: skip
GLM = ["<|assistant|>", "<|system|>", "[gMASK]", "<sop>", "<think>", "</think>", "<tool_call>",
       "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]  # fmt: skip
HARMONY = ["<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>"]
GEMMA4 = ["<pad>", "<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>"]
DEEPSEEK = ["<think>", "</think>"]


PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "size": {"shortest_edge": 1024, "longest_edge": 65536},
    "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
}  # fmt: skip
"""Settings of a small image processor: an output for 32 × 32 pixels, at most 64 an image."""


class Family(NamedTuple):
    """Names and tokens of a model family."""

    title: str
    template: str
    """File in trl's folder of templates, without its ending."""
    special: list[str]
    stops: list[str]
    bos: str = ""
    sees: str = ""
    """Model type of a family that reads images."""


FAMILIES = {
    family.title: family
    for family in (
        Family("Qwen2.5", "qwen2_5", QWEN, ["<|im_end|>", "<|endoftext|>"]),
        Family("Qwen3", "qwen3", QWEN, ["<|im_end|>", "<|endoftext|>"]),
        Family("Qwen3 Instruct 2507", "qwen3_instruct_2507", QWEN, ["<|im_end|>"]),
        Family("Qwen2.5-VL", "qwen2_5_vl", QWEN, ["<|im_end|>", "<|endoftext|>"],
               sees="qwen2_5_vl"),
        Family("Qwen3-VL", "qwen3_vl", QWEN, ["<|im_end|>", "<|endoftext|>"], sees="qwen3_vl"),
        Family("Qwen3.5", "qwen3_5_think", QWEN, ["<|im_end|>", "<|endoftext|>"], sees="qwen3_5"),
        Family("Qwen3.6", "qwen3_6", QWEN, ["<|im_end|>", "<|endoftext|>"], sees="qwen3_5"),
        Family("Qwen3.8", "qwen3_8", QWEN, ["<|im_end|>", "<|endoftext|>"]),
        Family("Llama 3.1", "llama3_1", LLAMA, ["<|eot_id|>", "<|eom_id|>"], "<|begin_of_text|>"),
        Family("Llama 3.2", "llama3_2", LLAMA, ["<|eot_id|>", "<|eom_id|>"], "<|begin_of_text|>"),
        Family("gpt-oss", "gptoss", HARMONY, ["<|return|>", "<|endoftext|>", "<|call|>"]),
        Family("GLM-4.5", "glm4moe", GLM, ["<|endoftext|>", "<|user|>", "<|observation|>"]),
        Family("DeepSeek V3", "deepseekv3", DEEPSEEK, ["<｜end▁of▁sentence｜>"],
               "<｜begin▁of▁sentence｜>"),
        Family("DeepSeek R1 distilled", "deepseek_r1_distill", DEEPSEEK, ["<｜end▁of▁sentence｜>"],
               "<｜begin▁of▁sentence｜>"),
        Family("Gemma 4", "gemma4_v5", GEMMA4, ["<turn|>", "<eos>", "<|tool_response>"], "<bos>"),
        Family("Gemma 3", "gemma3", ["<start_of_turn>"], ["<end_of_turn>", "<eos>"], "<bos>"),
        Family("Nemotron 3", "nemotron_3_nano", QWEN, ["<|im_end|>", "<|endoftext|>"]),
        Family("LFM2", "lfm2", QWEN, ["<|im_end|>"]),
        Family("Phi 3.5", "phi3_5", ["<|user|>", "<|assistant|>"], ["<|end|>", "<|endoftext|>"]),
    )
}  # fmt: skip
"""Families by title."""


def template_of(family: Family) -> str:
    """Chat template of a family."""
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "chat_templates"
    return (folder / f"{family.template}.jinja").read_text()


def make_family(family: Family, folder: Path) -> Path:
    """Write the files of a model folder that the chat format needs: a byte-level tokenizer with the
    family's special tokens, its template, its stop tokens and an empty config."""
    folder.mkdir(parents=True)
    template = template_of(family)
    wanted = {*family.special, *family.stops, *SPECIAL.findall(template)} | ({family.bos} - {""})
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({sign: n for n, sign in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in sorted(wanted)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template)
    names = {"eos_token": family.stops[0], "bos_token": family.bos}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    stops = [tokenizer.token_to_id(token) for token in family.stops]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    config: dict[str, Any] = {}
    if family.sees:
        token = tokenizer.token_to_id("<|image_pad|>")
        config = {"model_type": family.sees, "vision_config": {}, "image_token_id": token}
        (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    (folder / "config.json").write_text(json.dumps(config))
    return folder
