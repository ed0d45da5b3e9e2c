"""Shapes of known models, and folders of them that hold headers and no weights."""

import json
import math
import os
import struct
from pathlib import Path
from typing import NamedTuple

from engine.hardware.flops import ModelShape


class Known(NamedTuple):
    """What a model's config.json says, and how many parameters its files hold."""

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
        """Parameters of LoRA on the named layers, or on all."""
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


QWEN_1_8B = Known(2048, 5504, 24, 151_936, 16, 16, 1_836_828_672)
QWEN_7B = Known(4096, 11_008, 32, 151_936, 32, 32, 7_721_324_544)
QWEN_14B = Known(5120, 13_696, 40, 152_064, 40, 40, 14_167_290_880)
LLAMA_3B = Known(3072, 8192, 28, 128_256, 24, 8, 3_212_749_824)
LLAMA_8B = Known(4096, 14_336, 32, 128_256, 32, 8, 8_030_261_248)


def write_headers(folder: Path, model: Known = LLAMA_8B) -> Path:
    """A model folder as the plan reads it: config.json, a safetensors header, and a hole."""
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
    os.truncate(folder / "model.safetensors", 8 + len(header) + end)  # a hole takes no room
    return folder
