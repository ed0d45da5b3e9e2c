"""A merged model as sharded safetensors with its index, as transformers writes them."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors.torch import save_file
from torch import Tensor

from engine.export.torch.merge import BaseWeights, Factors, cast, merged

INDEX = "model.safetensors.index.json"
PATTERN = "model{suffix}.safetensors"

Progress = Callable[[int, int], None]


def write_merged(
    base: BaseWeights,
    adapter: dict[str, Factors],
    folder: Path,
    dtype: torch.dtype,
    shard_bytes: int,
    progress: Progress,
) -> None:
    """Write the weights; one shard is in memory at a time."""
    sizes = {name: math.prod(base.shape(name)) * dtype.itemsize for name in base.names}
    plan = split_state_dict_into_shards_factory(
        sizes, get_storage_size=int, filename_pattern=PATTERN, max_shard_size=shard_bytes
    )
    shard: dict[str, Tensor] = {}
    for done, (name, weight) in enumerate(merged(base, adapter), 1):
        shard[name] = cast(weight, dtype, name).contiguous()
        file = plan.tensor_to_filename[name] if plan.is_sharded else PATTERN.format(suffix="")
        expected = plan.filename_to_tensors[file]
        if len(shard) == len(expected):
            save_file(shard, folder / file, metadata={"format": "pt"})
            shard = {}
        progress(done, len(sizes))
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
