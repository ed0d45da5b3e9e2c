"""Measured peak rates of the machine, and the model's shape as `hardware.flops` counts it.

Measured once per process and precision, in under half a second: matrix rate and memory read rate.
No step is faster than both allow.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer, ParamWrapper
from torch import nn
from transformers import PreTrainedConfig

from engine.hardware.flops import ModelShape
from engine.models.file_checks import active_share
from engine.policy.torch.model.linear import times

CPU = torch.device("cpu")
ROWS = 512
"""Rows of the measured matrix product: enough to reuse each weight many times."""
SIDES = {"cpu": 2048, "cuda": 8192}
READ_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}
"""Bytes read by the measurement, by device; larger than any cache."""
BUDGET_S = 0.2
MOST_TRIES = 12


class Limits(NamedTuple):
    peak: float
    """Floating-point operations per second."""
    bandwidth: float
    """Bytes read per second."""


@cache
def limits(device: torch.device, dtype: torch.dtype) -> Limits:
    return Limits(measure_peak(dtype, device), measure_bandwidth(device))


@torch.inference_mode()
def measure_peak(dtype: torch.dtype, device: torch.device = CPU, rows: int = 0) -> float:
    """FLOP/s of a matrix product with `rows` rows (0: enough for the best rate)."""
    side = SIDES[device.type]
    rows = rows or (side if device.type == "cuda" else ROWS)
    left = torch.ones(rows, side, dtype=dtype, device=device)
    right = torch.ones(side, side, dtype=dtype, device=device)
    return 2 * rows * side * side / _best_seconds(lambda: times(left, right), device)


@torch.inference_mode()
def measure_bandwidth(device: torch.device = CPU) -> float:
    """Bytes per second of one pass over memory that is larger than the caches."""
    size = READ_BYTES[device.type]
    read = torch.ones(size // 4, dtype=torch.float32, device=device)
    return size / _best_seconds(read.sum, device)


def _best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Shortest time of several runs after a warm-up, within `BUDGET_S`."""
    times: list[float] = []
    end = time.perf_counter() + BUDGET_S
    while len(times) < 3 or (len(times) < MOST_TRIES and time.perf_counter() < end):
        start_s = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start_s)
    return min(times[1:])


def shape_of(trained: PeftModel, dtype: torch.dtype) -> ModelShape:
    """Shape of a loaded model, counted from its layers."""
    config = trained.config.get_text_config()
    layers = [
        module
        for module in trained.modules()
        if isinstance(module, LoraLayer) and not isinstance(module, ParamWrapper)
    ]
    heads, window = config.num_attention_heads, getattr(config, "sliding_window", None)
    key_heads, head_size = _widest_keys(config)
    kinds = getattr(config, "layer_types", None) or (
        ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    )
    head = trained.get_base_model().get_output_embeddings().weight
    return ModelShape(
        body=sum(layer.in_features * layer.out_features for layer in layers)
        + _unadapted_weights(trained, layers),
        adapter=sum(p.numel() for p in trained.parameters() if p.requires_grad),
        idle_adapter=_idle_weights(trained),
        hidden=head.shape[1],
        vocabulary=head.shape[0],
        query_heads=heads,
        key_heads=key_heads,
        head_size=head_size,
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
        width_bytes=dtype.itemsize,
        intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
    )


def _idle_weights(trained: PeftModel) -> int:
    """Weights of the LoRA matrices of experts that do not compute a token."""
    share = active_share(trained.config.get_text_config().to_dict())
    wrappers = [part for part in trained.modules() if isinstance(part, ParamWrapper)]
    factors = [p for one in wrappers for p in (*one.lora_A.parameters(), *one.lora_B.parameters())]
    return int((1 - share) * sum(p.numel() for p in factors))


def _unadapted_weights(trained: PeftModel, adapted: list[LoraLayer]) -> int:
    """Weights of layers without an adapter that compute a token: those of a mixture's routers,
    dense layers and active experts."""
    decoder = trained.get_base_model().get_decoder()
    others = [*adapted, *(part for part in decoder.modules() if isinstance(part, nn.Embedding))]
    known = {id(p) for part in others for p in part.parameters()}  # type: ignore[attr-defined]
    known |= {id(p) for p in decoder.parameters() if p.requires_grad}
    share = active_share(trained.config.get_text_config().to_dict())
    return sum(
        int(p.numel() * share) if p.ndim == 3 else p.numel()
        for p in decoder.parameters()
        if p.ndim in (2, 3) and id(p) not in known
    )


def _widest_keys(config: PreTrainedConfig) -> tuple[int, int]:
    """Key-value heads and size of a head, the largest of all layers. With latent attention (MLA)
    they are those of the expanded keys, which are cached."""
    heads = config.num_attention_heads
    if nope := getattr(config, "qk_nope_head_dim", None):
        return heads, nope + config.qk_rope_head_dim
    layers = getattr(config, "per_layer_config", None) or [config]
    return (
        max(getattr(layer, "num_key_value_heads", None) or heads for layer in layers),
        max(getattr(layer, "head_dim", None) or config.hidden_size // heads for layer in layers),
    )
