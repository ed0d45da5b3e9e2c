"""Merge of base weights and an adapter by tensor: W + s·B·A in float32 (LoRA, arXiv 2106.09685).

One tensor is in memory at a time; names and shapes are those of the base model's files. The merged
model is written as sharded safetensors with an index, as transformers writes them.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.export.torch.experts import Factors, Shapes, expert_factors
from engine.models.file_checks import read_json
from engine.protocol.problems import ModelError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
LANGUAGE_MODEL = "model.language_model."


class BaseWeights:
    """Safetensors files of a model folder, read tensor by tensor."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                self._files |= dict.fromkeys(file.keys(), path)
        self.folder = folder

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        with safe_open(self._files[name], "pt") as file:
            return tuple(file.get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        """Return a tensor in its stored precision."""
        with safe_open(self._files[name], "pt") as file:
            return file.get_tensor(name)  # type: ignore[no-any-return]

    def count(self) -> int:
        """Return the total number of weights."""
        return sum(math.prod(self.shape(name)) for name in self.names)

    def has(self, name: str) -> bool:
        return name in self._files


def read_adapter(folder: Path, base: BaseWeights) -> dict[str, Factors]:
    """Return LoRA factors by the name of the base weight that they change. Raises ModelError for
    kinds of adapters other than plain LoRA."""
    config = read_json(folder / CONFIG)
    _refuse_unusual(config, folder)
    scale = config["lora_alpha"] / config["r"]
    tensors = load_file(folder / WEIGHTS)
    layers = {}
    for name, down in tensors.items():
        if name.endswith(".lora_A.weight"):
            layer = name.removesuffix(".lora_A.weight")
            if (up := tensors.get(f"{layer}.lora_B.weight")) is None:
                raise _unusual(f"{layer} has a matrix A but no B", folder)
            layers[layer.removeprefix(PREFIX)] = Factors(down, up, scale)
    if 2 * len(layers) != len(tensors):
        raise _unusual("it has weights other than A and B", folder)
    found: dict[str, Factors] = {}
    of_experts: set[str] = set()
    if config.get("target_parameters"):
        shapes = Shapes(base.folder, {name: base.shape(name) for name in base.names})
        found, of_experts = expert_factors(shapes, layers, config["r"])
    for layer in layers.keys() - of_experts:
        weight = f"{layer}.weight"
        if not base.has(weight):  # files of Qwen2-VL and 2.5-VL have older names
            weight = weight.replace(LANGUAGE_MODEL, "model.", 1)
        found[weight] = layers[layer]
    return found


def merged(base: BaseWeights, adapter: dict[str, Factors]) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight of the base model in float32, with the adapter merged. Raises ModelError
    if the adapter changes a weight that the files do not have."""
    if strange := sorted(name for name in adapter if not base.has(name)):
        raise ModelError.of(
            "export.names",
            f"The adapter changes {strange[0]}, which does not exist in the base model's files.",
            "Export the adapter unmerged; merging is not supported for this architecture.",
            where=base.folder.name,
        )
    for name in base.names:
        weight = base.tensor(name).float()
        if factors := adapter.get(name):
            weight = weight + factors.delta()
        yield name, weight


def _refuse_unusual(config: dict[str, object], folder: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise _unusual(f"its type is {config.get('peft_type')}", folder)
    for key in ("use_dora", "use_rslora", "fan_in_fan_out", "alpha_pattern", "rank_pattern"):
        if config.get(key):
            raise _unusual(f"it uses {key}", folder)
    for key in ("r", "lora_alpha"):
        if type(config.get(key)) not in (int, float) or not 0 < float(str(config[key])) < 1e6:
            raise _unusual(f"its {key} is {str(config.get(key))[:40]}", folder)
    if config.get("bias", "none") != "none" or config.get("modules_to_save"):
        raise _unusual("it changes more than linear layers", folder)


def _unusual(what: str, folder: Path) -> ModelError:
    return ModelError.of(
        "export.unusual_adapter",
        f"This adapter is not plain LoRA: {what}.",
        "Merge the adapter with the program that made it.",
        where=str(folder),
    )


def cast(weight: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Round a weight to a data type. Raises ModelError if a value overflows."""
    rounded = weight.to(dtype)
    if not torch.isfinite(rounded).all():
        words = str(dtype).removeprefix("torch.")
        raise ModelError.of(
            "export.overflow",
            f"{name} has a value that does not fit into {words}.",
            "Export in bfloat16 or float32.",
        )
    return rounded


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
    """Write merged weights as shards of up to `shard_bytes`. One is in memory at a time, and a
    tensor that exceeds this size."""
    sizes = {name: math.prod(base.shape(name)) * dtype.itemsize for name in base.names}
    plan = split_state_dict_into_shards_factory(
        sizes, get_storage_size=int, filename_pattern=PATTERN, max_shard_size=shard_bytes
    )
    shards: dict[str, dict[str, Tensor]] = {}  # two are open around a tensor with its own
    for done, (name, weight) in enumerate(merged(base, adapter), 1):
        file = plan.tensor_to_filename[name] if plan.is_sharded else PATTERN.format(suffix="")
        shard = shards.setdefault(file, {})
        shard[name] = cast(weight, dtype, name).contiguous()
        if len(shard) == len(plan.filename_to_tensors[file]):
            save_file(shards.pop(file), folder / file, metadata={"format": "pt"})
        progress(done, len(sizes))
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
