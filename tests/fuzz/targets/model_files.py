"""Model folders from elsewhere (`model_files`): config, index, tokenizer, safetensors header."""

import json
import struct
from pathlib import Path

from engine.models.file_checks import check_folder, header, shape_counts
from engine.protocol.problems import AtelierError

REFUSALS = (AtelierError,)
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 259,
    "max_position_embeddings": 2048, "text_config": {"head_dim": 32},
}  # fmt: skip
TOKENIZER = {"chat_template": "{{ messages }}", "eos_token": "<end>"}
INDEX = {"weight_map": {"a": "model.safetensors"}}
ABOUT = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}
NAMES = ("config.json", "tokenizer_config.json", "model.safetensors.index.json")


def weights() -> bytes:
    text = json.dumps(ABOUT).encode()
    return struct.pack("<Q", len(text)) + text + bytes(32)


def seeds() -> list[bytes]:
    """The first byte determines which file it becomes."""
    texts = [json.dumps(one).encode() for one in (CONFIG, TOKENIZER, INDEX)]
    return [bytes([n]) + content for n, content in enumerate((*texts, weights()))]


def execute(data: bytes, folder: Path) -> None:
    for name, content in zip(NAMES, (CONFIG, TOKENIZER, INDEX), strict=True):
        (folder / name).write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(weights())
    (folder / "tokenizer.json").write_text("{}")
    which = data[0] % 4 if data else 0
    (folder / (*NAMES, "model.safetensors")[which]).write_bytes(data[1:])
    if which == 3:
        entries = header(folder / "model.safetensors")
        assert sum(
            entry["data_offsets"][1] - entry["data_offsets"][0] for entry in entries.values()
        )
    check_folder(folder, "fuzzed")
    counts = shape_counts(folder)
    assert all(0 <= count < 2**62 for count in counts.values())
