"""Shapes of published models, and model folders with headers and no weights."""

import json
import math
import os
import struct
from pathlib import Path
from typing import NamedTuple

from engine.hardware.flops import ModelShape


class PublishedModel(NamedTuple):
    """Sizes from a model's config.json, and the parameter count of its files."""

    hidden: int
    intermediate: int
    layers: int
    vocabulary: int
    heads: int
    key_heads: int
    parameters: int
    head_size: int = 128

    @property
    def sides(self) -> dict[str, tuple[int, int]]:
        """(in, out) of the linear layers of one block."""
        query, key = self.heads * self.head_size, self.key_heads * self.head_size
        return {
            "q": (self.hidden, query),
            "k": (self.hidden, key),
            "v": (self.hidden, key),
            "o": (query, self.hidden),
            "gate": (self.hidden, self.intermediate),
            "up": (self.hidden, self.intermediate),
            "down": (self.intermediate, self.hidden),
        }

    @property
    def linear(self) -> int:
        return self.layers * sum(i * o for i, o in self.sides.values())

    @property
    def rest(self) -> int:
        return self.parameters - self.linear

    def adapter(self, rank: int, *names: str) -> int:
        """LoRA parameters of the named layers, or of all."""
        sides = (self.sides[name] for name in names or self.sides)
        return rank * self.layers * sum(i + o for i, o in sides)

    def shape(self, adapter: int) -> ModelShape:
        return ModelShape(
            body=self.linear,
            adapter=adapter,
            hidden=self.hidden,
            vocabulary=self.vocabulary,
            query_heads=self.heads,
            key_heads=self.key_heads,
            head_size=self.head_size,
            windows=(None,) * self.layers,
            intermediate=self.intermediate,
        )


QWEN_1_8B = PublishedModel(2048, 5504, 24, 151_936, 16, 16, 1_836_828_672)
QWEN_7B = PublishedModel(4096, 11_008, 32, 151_936, 32, 32, 7_721_324_544)
QWEN_14B = PublishedModel(5120, 13_696, 40, 152_064, 40, 40, 14_167_290_880)
LLAMA_3B = PublishedModel(3072, 8192, 28, 128_256, 24, 8, 3_212_749_824)
LLAMA_8B = PublishedModel(4096, 14_336, 32, 128_256, 32, 8, 8_030_261_248)


def write_headers(folder: Path, model: PublishedModel = LLAMA_8B) -> Path:
    """Write a model folder with config.json and a safetensors header over a sparse file."""
    folder.mkdir(parents=True)
    config = {
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_heads,
        "head_dim": model.head_size,
        "vocab_size": model.vocabulary,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        f"model.layers.{layer}.{name}_proj.weight": [out, into]
        for layer in range(model.layers)
        for name, (into, out) in model.sides.items()
    }
    shapes["model.embed_tokens.weight"] = [model.vocabulary, model.hidden]
    shapes["lm_head.weight"] = [model.vocabulary, model.hidden]
    shapes["norms"] = [model.rest - 2 * model.vocabulary * model.hidden]
    entries, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(folder / "model.safetensors", 8 + len(header) + end)  # sparse, takes no disk space
    return folder
