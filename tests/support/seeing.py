"""Tiny random models of the Qwen-VL families, which read images."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForImageTextToText

from engine.policy.base import ImageInput

VOCABULARY, PATCH, MERGE, FRAMES = 320, 4, 2, 2
PLACEHOLDER = 300
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]},
}
VISION: dict[str, Any] = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "temporal_patch_size": FRAMES,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
INTERLEAVED = {"rope_parameters": TEXT["rope_parameters"] | {"mrope_interleaved": True}}
DEEPSTACK = {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
DELTA = {
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [1, 1, 2],
        "mrope_interleaved": True,
        "partial_rotary_factor": 0.25,
    },
}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen2_vl": ({}, {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}),
    "qwen2_5_vl": ({}, {"window_size": 4 * PATCH, "fullatt_block_indexes": [1]}),
    "qwen3_vl": (INTERLEAVED, DEEPSTACK),
    "qwen3_vl_moe": (INTERLEAVED | EXPERTS, DEEPSTACK),
    "qwen3_5": (DELTA, {"num_position_embeddings": 64}),
    "qwen3_5_moe": (
        DELTA | EXPERTS | {"shared_expert_intermediate_size": 32},
        {"num_position_embeddings": 64},
    ),
}
"""Settings of language model and vision model, by model type."""


PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "patch_size": PATCH,
    "merge_size": MERGE,
    "temporal_patch_size": FRAMES,
    "min_pixels": (PATCH * MERGE) ** 2,
    "max_pixels": 64 * (PATCH * MERGE) ** 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML with images, as in Qwen-VL."""


def save_model(kind: str, folder: Path, **text: Any) -> Path:
    """Save a random model whose weights are far from uniform; `text`: further settings of its
    language model. Returns the folder."""
    torch.manual_seed(0)
    language, vision = KINDS[kind]
    config = AutoConfig.for_model(
        kind,
        text_config=TEXT | language | text,
        vision_config=VISION | vision,
        image_token_id=PLACEHOLDER,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
    )
    model = AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def save_processor(folder: Path) -> None:
    """Save tokenizer and image processor of a model of this module: bytes, and the special tokens
    at the ids of its config."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fillers = [f"<|filler_{number}|>" for number in range(PLACEHOLDER - 3 - len(alphabet))]
    special = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    others = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: n for n, token in enumerate([*others, *alphabet, *fillers, *special])}
    assert vocabulary["<|image_pad|>"] == PLACEHOLDER
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*others, *special])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "Qwen2TokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))


def image_input(folder: Path, seed: int, start: int, grid: tuple[int, int, int]) -> ImageInput:
    """Image of random pixels, of `grid` patches, whose placeholders begin at `start`."""
    folder.mkdir(exist_ok=True)
    pixels_PD = torch.randn(
        grid[0] * grid[1] * grid[2],
        3 * FRAMES * PATCH**2,
        generator=torch.Generator().manual_seed(seed),
    )
    file = folder / f"{seed}.safetensors"
    save_file({"pixels": pixels_PD, "grid": torch.tensor(grid)}, file)
    count = len(pixels_PD) // MERGE**2
    return ImageInput(start=start, count=count, id=f"{seed:064x}", file=str(file))
