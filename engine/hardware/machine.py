"""Resources of this machine and needs of a run. Sizes come from file headers."""

import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psutil

from engine.hardware.devices import cards_of
from engine.hardware.flops import ModelShape, forward_flops
from engine.hardware.forecast import (
    PROGRAM_BYTES,
    Machine,
    WorkShape,
    activation_bytes,
    sample_seconds,
    sampler_bytes,
    update_seconds,
)
from engine.models.file_checks import shape_counts
from engine.protocol.config.project import BackendConfig, ProjectConfig, TrainConfig
from engine.protocol.records.forecast import Forecast

RESERVE_BYTES = 1_000_000_000
FLOPS_PER_CORE = {"float32": 210e9, "bfloat16": 420e9}
"""Assumed FLOP/s of one server core with AVX-512; a run logs the measured value."""
BYTES_PER_CORE = 25e9
SHORT_PROMPT = 48
Model = Path | Mapping[str, int]
"""Folder of a base model, or its counts as by `shape_counts`."""
CHECKPOINT_BYTES = 12
"""Bytes per adapter parameter: weight and two moments of AdamW in float32."""


@cache
def device_words() -> str:
    return f"CPU · {os.cpu_count()} cores"


def devices_of(backend: BackendConfig) -> str:
    """Device of a run with these settings, in words."""
    names = Counter(card.name for card in cards_of(backend))
    words = [f"{count} × {name}" if count > 1 else name for name, count in names.items()]
    return " · ".join(words) or device_words()


def threads() -> int:
    """Number of threads per process: OMP_NUM_THREADS, else the usable cores."""
    value = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if value.isdecimal() and int(value) > 0:
        return int(value)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def has_native_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 natively (otherwise 30–200 times slower)."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def host_memory() -> int:
    """Memory of this machine in bytes."""
    return int(psutil.virtual_memory().total)


def free_disk(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def step_disk_need(config: ProjectConfig, model: Model) -> int:
    """Free disk space in bytes required to begin a step: two checkpoints and a reserve."""
    return 2 * CHECKPOINT_BYTES * adapter_parameters(config, model) + RESERVE_BYTES // 5


def kept_checkpoints(train: TrainConfig) -> int:
    """Maximum number of checkpoints kept at the end: newest and best ones."""
    saved = math.ceil(train.steps / train.checkpoint_every)
    return saved if train.keep_last is None else min(saved, train.keep_last + train.keep_best)


def forecast(
    config: ProjectConfig, model: Model, step_times_s: list[float], place: Path
) -> Forecast:
    """Forecast memory, disk and time of a run on the CPU with this base `model`, in the runs folder
    `place`. `step_times_s`: seconds per step of an earlier run, newest last (empty: estimated)."""
    precision = config.model.dtype
    if precision == "auto":
        precision = "bfloat16" if has_native_bfloat16() else "float32"
    shape = shape_of(config, model, precision)
    train = config.train
    least, most = expected_work(config)
    memory = psutil.virtual_memory()
    context = min(config.model.max_context, most.prompt + most.completion)
    low, high = step_range(config, shape, precision, (least, most), step_times_s)
    parameters = counts_of(model)["parameters"]
    return Forecast(
        weights_bytes=parameters * shape.width_bytes + PROGRAM_BYTES,
        sampler_bytes=sampler_bytes(shape, most, context, memory.available),
        adapter_bytes=16 * shape.adapter,
        activations_bytes=activation_bytes(
            shape, most, train.batch_tokens, config.backend.recompute
        ),
        available_bytes=memory.total,
        step_low_s=low,
        step_high_s=high,
        steps=train.steps,
        disk_bytes=kept_checkpoints(train) * CHECKPOINT_BYTES * shape.adapter or None,
        disk_free_bytes=free_disk(place),
        kept=kept_checkpoints(train),
        measured=bool(step_times_s),
    )


def expected_work(config: ProjectConfig) -> tuple[WorkShape, WorkShape]:
    """Return lower and upper estimates of a step's work; actual lengths depend on the agent."""
    train, context = config.train, config.model.max_context
    least = WorkShape(SHORT_PROMPT, max(1, train.max_tokens / 4), train.group_size, train.groups)
    prompt = max(SHORT_PROMPT, min(context - train.max_tokens, 4 * train.max_tokens + 128))
    return least, WorkShape(prompt, train.max_tokens, train.group_size, train.groups)


def step_range(
    config: ProjectConfig,
    shape: ModelShape,
    precision: str,
    expected: tuple[WorkShape, WorkShape],
    step_times_s: list[float],
) -> tuple[float, float]:
    """Return (low, high) seconds per step: of the last ten in `step_times_s`, else estimated from
    the `expected` work."""
    if recent := sorted(step_times_s[-10:]):
        return recent[0], recent[-1]
    cores = os.cpu_count() or 1
    machine = Machine(FLOPS_PER_CORE[precision] * cores, BYTES_PER_CORE * cores)
    train = config.train
    passes = len(train.algorithm.extra_passes) + config.backend.recompute
    low, high = (
        sample_seconds(shape, machine, work)
        + update_seconds(shape, machine, work, train.batch_tokens)
        + passes * forward_flops(shape, work.unique_tokens, work.sampled_tokens, 0) / machine.peak
        for work in expected
    )
    return low, high


def counts_of(model: Model) -> Mapping[str, int]:
    """Return the counts of a model by name, such as `parameters`: read from its files if `model` is
    a folder, else `model` itself."""
    return shape_counts(model) if isinstance(model, Path) else model


def shape_of(config: ProjectConfig, model: Model, precision: str) -> ModelShape:
    """Dimensions of a model for weights in this precision."""
    counts = counts_of(model)
    return ModelShape(
        body=counts["linear"],
        adapter=adapter_parameters(config, model),
        idle_adapter=adapter_parameters(config, model) - _active_parameters(config, model),
        hidden=counts["hidden"],
        vocabulary=counts["vocabulary"],
        query_heads=counts["query_heads"],
        key_heads=counts["key_heads"],
        head_size=counts["head_size"],
        windows=(None,) * counts["layers"],
        width_bytes=2 if precision == "bfloat16" else 4,
        intermediate=counts["intermediate"],
    )


def _active_parameters(config: ProjectConfig, model: Model) -> int:
    """Number of adapter parameters that compute a token."""
    counts = counts_of(model)
    experts = counts.get("active_expert_sides", 0) if config.model.adapt_experts else 0
    return config.model.rank * (counts["lora_sides"] + experts)


def adapter_parameters(config: ProjectConfig, model: Model) -> int:
    """Number of adapter parameters: Σ rank · (in + out) over the adapted layers and, if they are
    adapted, the projections of each expert."""
    counts = counts_of(model)
    experts = counts.get("expert_sides", 0) if config.model.adapt_experts else 0
    return config.model.rank * (counts["lora_sides"] + experts)
