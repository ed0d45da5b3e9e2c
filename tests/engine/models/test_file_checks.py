"""Checks of untrusted model folders: no links, no code, bounded sizes."""

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine.models.file_checks import check_folder, header, read_json, shape_counts
from engine.models.registry import find_model
from engine.protocol.problems import ModelError


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """Copy of the tiny model that a test may modify."""
    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def update_json(file: Path, **values: Any) -> None:
    values_ = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(values_ | values))


INVALID_FOLDERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "adapter": (
        "model.holds_adapter",
        lambda f: update_json(f / "adapter_config.json", base_model_name_or_path="/elsewhere"),
    ),
    "code": ("model.remote_code", lambda f: update_json(f / "config.json", auto_map={})),
    "kernel": (
        "model.hub_kernel",
        lambda f: update_json(f / "config.json", _attn_implementation="kernels-community/flash"),
    ),
    "nested kernel": (
        "model.hub_kernel",
        lambda f: update_json(f / "config.json", text_config={"attn_implementation": "a/b"}),
    ),
    "weights elsewhere": (
        "model.outside_folder",
        lambda f: update_json(
            f / "model.safetensors.index.json", weight_map={"a": "../../other.safetensors"}
        ),
    ),
    "pickled weights": (
        "model.outside_folder",
        lambda f: update_json(
            f / "model.safetensors.index.json", weight_map={"a": "pytorch_model.bin"}
        ),
    ),
    "only pickled weights": (
        "model.not_safetensors",
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
    ),
    "deep": ("model.unreadable", lambda f: (f / "config.json").write_text('{"a":' * 100_000)),
    "list": ("model.unreadable", lambda f: (f / "config.json").write_text("[]")),
    "not UTF-8": (
        "model.unreadable",
        lambda f: (f / "tokenizer_config.json").write_bytes(b"\xff\xfe\x00"),
    ),
    "huge": ("model.unreadable", lambda f: os.truncate(f / "tokenizer_config.json", 2**32)),
    "huge template": (
        "model.unreadable",
        lambda f: (f / "chat_template.jinja").write_text("x" * (2**20 + 1)),
    ),
    "pipe": (
        "model.unreadable",
        lambda f: ((f / "tokenizer_config.json").unlink(), os.mkfifo(f / "tokenizer_config.json")),
    ),
}


@pytest.mark.parametrize("damage", INVALID_FOLDERS)
def test_invalid_model_folder_is_rejected_at_once(folder: Path, damage: str) -> None:
    check_folder(folder, "m")
    code, modify = INVALID_FOLDERS[damage]
    modify(folder)
    start = time.monotonic()
    with pytest.raises(ModelError) as raised:
        check_folder(folder, "m")
    assert raised.value.problem.code == code
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    "values",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": "2"},
        {"num_hidden_layers": 1e9},
        {"vocab_size": None},
        {"hidden_size": 2**40},
        {"head_dim": True},
        {"text_config": {"hidden_size": []}},
    ],
)
def test_config_counts_must_be_positive_integers(folder: Path, values: dict[str, Any]) -> None:
    assert shape_counts(folder)["query_heads"] == 2
    update_json(folder / "config.json", **values)
    with pytest.raises(ModelError, match="not a positive number"):
        shape_counts(folder)


def test_unsupported_architecture_is_named_before_anything_is_loaded(folder: Path) -> None:
    assert find_model(str(folder)) == folder
    update_json(folder / "config.json", model_type="bloom")
    with pytest.raises(ModelError, match="has its own attention code in transformers"):
        find_model(str(folder))


def test_counts_of_a_mixture_of_experts(folder: Path) -> None:
    """Two of four experts compute a token; only attention gets an adapter."""
    weights = {
        "model.embed_tokens.weight": torch.zeros(10, 8),
        "model.layers.0.self_attn.q_proj.weight": torch.zeros(8, 8),
        "model.layers.0.mlp.gate.weight": torch.zeros(4, 8),
        **{f"model.layers.0.mlp.experts.{n}.up_proj.weight": torch.zeros(6, 8) for n in range(4)},
    }
    for file in folder.glob("*.safetensors"):
        file.unlink()
    save_file(weights, folder / "model.safetensors")
    update_json(
        folder / "config.json",
        num_experts=4,
        num_experts_per_tok=2,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
    )
    counts = shape_counts(folder)
    assert counts["parameters"] == 80 + 64 + 32 + 192
    assert counts["linear"] == 64 + 32 + 96
    assert counts["lora_sides"] == 16
    assert counts["expert_sides"] == 4 * (6 + 8)
    assert counts["active_expert_sides"] == 2 * (6 + 8)
    assert (counts["key_heads"], counts["head_size"]) == (counts["query_heads"], 24)


def test_header_must_match_its_file(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}, file)
    assert header(file)["a"]["shape"] == [2, 3]
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    about = json.loads(content[8 : 8 + length])

    def assert_rejected(modified: bytes) -> None:
        file.write_bytes(modified)
        with pytest.raises(ModelError):
            header(file)

    assert_rejected(content[:-1])
    assert_rejected(content + b"\0")
    assert_rejected(content[:5])
    assert_rejected(struct.pack("<Q", 2**60) + content[8:])
    for entry in (
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": [-2, -3], "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 0]},
        {"dtype": "X9", "shape": [2, 3], "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": "23", "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": [2, 3]},
        7,
    ):
        text = json.dumps(about | {"a": entry}).encode()
        assert_rejected(struct.pack("<Q", len(text)) + text + content[8 + length :])


@given(st.binary(max_size=400))
def test_arbitrary_bytes_raise_only_model_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    for content in (data, struct.pack("<Q", max(0, len(data) - 8)) + data):
        file.write_bytes(content)
        for read in (header, read_json):
            try:
                read(file)
            except ModelError:
                continue
