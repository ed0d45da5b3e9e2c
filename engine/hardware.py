"""What this machine has, and what a run will need of it. Sizes come from file headers."""

import json
import os
import shutil
import struct
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from engine.protocol.config import ProjectConfig
from engine.protocol.records import Forecast

RESERVE_BYTES = 1_000_000_000
FLOPS_PER_CORE = {"float32": 60e9, "bfloat16": 220e9}
"""Matrix work one server core does in a second, roughly: measured 105 and 470 GFLOP/s at best."""


@cache
def device_words() -> str:
    return f"CPU · {os.cpu_count()} cores"


def has_native_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 itself (else it is 30–200 times slower)."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def free_disk(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def step_disk_need(config: ProjectConfig, model: Path) -> int:
    """Two checkpoints and a reserve: no step is begun that could not be kept."""
    return 2 * 12 * adapter_parameters(config, model) + RESERVE_BYTES // 5


def forecast(config: ProjectConfig, model: Path, step_times_s: list[float]) -> Forecast:
    """Memory and time before the first step; `step_times_s` are of an earlier run, newest last."""
    shape = model_shape(model)
    precision = config.model.dtype
    if precision == "auto":
        precision = "bfloat16" if has_native_bfloat16() else "float32"
    width = 2 if precision == "bfloat16" else 4
    adapter = adapter_parameters(config, model)
    rows = min(64, config.train.groups * config.train.group_size)
    context = min(config.model.max_context, 512)
    cache_bytes = rows * context * shape["kv"] * width
    low, high = step_range(config, shape, precision, step_times_s)
    return Forecast(
        weights_bytes=shape["parameters"] * width,
        sampler_bytes=cache_bytes,
        adapter_bytes=16 * adapter,
        activations_bytes=_activations(config, shape, width),
        available_bytes=psutil.virtual_memory().total,
        step_low_s=low,
        step_high_s=high,
        steps=config.train.steps,
        measured=bool(step_times_s),
    )


def step_range(
    config: ProjectConfig, shape: dict[str, int], precision: str, step_times_s: list[float]
) -> tuple[float, float]:
    """Seconds per step: of the last ten measured ones, else from the work and the cores."""
    if recent := sorted(step_times_s[-10:]):
        return recent[0], recent[-1]
    train = config.train
    attempts = train.groups * train.group_size
    sampled = attempts * train.max_tokens
    read = attempts * min(config.model.max_context, 4 * train.max_tokens + 128)
    rate = FLOPS_PER_CORE[precision] * (os.cpu_count() or 1)
    # sampling runs far below the matrix rate; a LoRA step costs about 3 forwards (4 N + 2 N)
    forwards = 3 + len(train.algorithm.extra_passes)
    seconds = 2 * shape["parameters"] * (8 * sampled + forwards * read) / rate
    return 0.25 * seconds + 1, seconds + 2


def adapter_parameters(config: ProjectConfig, model: Path) -> int:
    """Σ rank · (in + out) over the adapted linear layers."""
    return config.model.rank * model_shape(model)["lora_sides"]


@cache
def model_shape(model: Path) -> dict[str, int]:
    """Counts from the headers of the safetensors files.

    `parameters` in all, `linear` in adapted layers, `lora_sides` Σ (in + out) over them, `kv`
    numbers per cached token, `layers`, `hidden`, `vocabulary`.
    """
    config = json.loads((model / "config.json").read_text())
    config = {**config, **config.get("text_config", {})}
    total = linear = sides = 0
    for file in model.glob("*.safetensors"):
        for name, entry in _header(file).items():
            size, shape = _count(entry["shape"]), entry["shape"]
            total += size
            if len(shape) == 2 and "embed" not in name and "lm_head" not in name:
                linear += size
                sides += sum(shape)
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    return {
        "parameters": total,
        "linear": linear,
        "lora_sides": sides,
        "kv": 2 * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * head,
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "intermediate": config.get("intermediate_size", 4 * config["hidden_size"]),
        "vocabulary": config["vocab_size"],
    }


def _activations(config: ProjectConfig, shape: dict[str, int], width: int) -> int:
    """Kept for the backward pass: about 24 hidden and 4 intermediate vectors a token and layer."""
    rows = config.train.groups * config.train.group_size
    tokens = min(config.train.batch_tokens, rows * config.model.max_context)
    per_layer = 24 * shape["hidden"] + 4 * shape["intermediate"]
    logits = 512 * shape["vocabulary"] * 4 * 3
    return tokens * shape["layers"] * per_layer * width + logits


def _header(file: Path) -> dict[str, Any]:
    with file.open("rb") as source:
        length = struct.unpack("<Q", source.read(8))[0]
        if length > file.stat().st_size:
            raise ValueError(f"{file.name} is damaged: its header is longer than the file")
        header: dict[str, Any] = json.loads(source.read(length))
    header.pop("__metadata__", None)
    return header


def _count(shape: list[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size
