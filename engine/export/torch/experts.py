"""LoRA factors of a mixture's experts by the names in the base model's files.

PEFT adapts the stacked weights that transformers has in memory; files may have one tensor for each
expert and projection (`experts.3.gate_proj.weight`), other names, or transposed tensors. The
conversion mapping by which transformers loads the files tells which part of the stacked weight a
tensor of a file is.

E experts, O outputs, I inputs of a projection, r rank.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    Concatenate,
    MergeModulelist,
    Transpose,
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from engine.models.architectures import reads_images
from engine.models.file_checks import read_json
from engine.policy.torch.model.experts import projections, stacked
from engine.protocol.problems import ModelError

WRAPPED = ".base_layer"
"""Part of a name that PEFT adds for each wrapper nested in another one."""


class Factors(NamedTuple):
    """LoRA factors of one weight [O, I] or of stacked ones [E, O, I]: A [r, I] or [E, r, I], B
    [O, r] or [E, O, r], and the scale s."""

    down: Tensor
    up: Tensor
    scale: float

    def delta(self) -> Tensor:
        """Change of the weight, s·B·A, in float32."""
        return self.scale * (self.up.float() @ self.down.float())

    def rows(self, rows: slice) -> "Factors":
        """Factors of these rows of the first dimension of the weight."""
        down = self.down[rows] if self.down.ndim == 3 else self.down
        return Factors(down, self.up[rows], self.scale)


class Shapes(NamedTuple):
    """Tensors in the files of a base model."""

    folder: Path
    shapes: Mapping[str, tuple[int, ...]]


def expert_factors(
    base: Shapes, adapter: dict[str, Factors], rank: int
) -> tuple[dict[str, Factors], set[str]]:
    """Return the factors of experts by the names of tensors in the files, and the names of the
    layers of `adapter` that they come from. `adapter` has A [E · r, I] and B [O, r · E] by the name
    of a layer, as PEFT stores them. Raises ModelError if a tensor cannot be found in the files."""
    model = empty_model(base.folder)
    of_memory: dict[str, tuple[Factors, bool]] = {}
    used: set[str] = set()
    for name, experts in stacked(model).items():
        weights = projections(experts)
        for depth, weight in enumerate(reversed(weights)):
            layer = name + WRAPPED * depth
            if layer in adapter:
                used.add(layer)
                factors = _unstacked(adapter[layer], experts, rank)
                of_memory[f"{name}.{weight}"] = factors, bool(experts.is_transposed)
    return _of_files(base, model, of_memory), used


def empty_model(folder: Path) -> PreTrainedModel:
    """Model of a folder without weights."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    images = reads_images(read_json(folder / "config.json"))
    kind = AutoModelForImageTextToText if images else AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config)  # type: ignore[no-any-return]


def _unstacked(factors: Factors, experts: nn.Module, rank: int) -> Factors:
    """Factors [E, r, I] and [E, O, r] from those of PEFT, which orders A by expert and rank, B by
    rank and expert (`ParamWrapper.get_delta_weight`)."""
    count: int = experts.num_experts  # type: ignore[assignment]
    down = factors.down.reshape(count, rank, -1)
    up = factors.up.reshape(len(factors.up), rank, count).permute(2, 0, 1)
    return Factors(down, up, factors.scale)


def _of_files(
    base: Shapes, model: PreTrainedModel, of_memory: dict[str, tuple[Factors, bool]]
) -> dict[str, Factors]:
    sources = _sources(base, model)
    found: dict[str, Factors] = {}
    for name, (factors, transposed) in of_memory.items():
        if name not in sources:
            raise _unmapped(base.folder, name)
        converter, files = sources[name]
        kinds = [type(one) for one in converter.operations] if converter else []
        shape = (len(factors.up), factors.up.shape[1], factors.down.shape[2])
        if kinds in ([MergeModulelist], [MergeModulelist, Concatenate]) and not transposed:
            found |= _by_expert(base, name, files, factors)
            continue
        (file,) = next(iter(files.values()))
        if kinds == [Transpose] and base.shapes[file] != shape:
            transposed = not transposed
        elif kinds not in ([], [Transpose]):
            raise _unmapped(base.folder, name)
        if transposed:
            factors = Factors(factors.up.mT, factors.down.mT, factors.scale)
            shape = (shape[0], shape[2], shape[1])
        if base.shapes[file] != shape:
            raise _unmapped(base.folder, name)
        found[file] = factors
    return found


def _by_expert(
    base: Shapes, name: str, files: dict[str, list[str]], factors: Factors
) -> dict[str, Factors]:
    """Factors of tensors of single experts. `files`: their names for each part of the stacked
    weight, in the order in which the parts follow each other in its outputs."""
    found, start = {}, 0
    for names in files.values():
        ordered = sorted(names, key=dot_natural_key)
        end = start + base.shapes[ordered[0]][0]
        if len(ordered) != len(factors.up):
            raise _unmapped(base.folder, name)
        for expert, file in enumerate(ordered):
            up, down = factors.up[expert, start:end], factors.down[expert]
            if base.shapes[file] != (len(up), down.shape[1]):
                raise _unmapped(base.folder, name)
            found[file] = Factors(down, up, factors.scale)
        start = end
    if start != factors.up.shape[1]:
        raise _unmapped(base.folder, name)
    return found


def _sources(
    base: Shapes, model: PreTrainedModel
) -> dict[str, tuple[WeightConverter | None, dict[str, list[str]]]]:
    """The conversion of each weight in memory (None: a new name at most), and the tensors of the
    files that it is made of, for each of the conversion's patterns."""
    mapping = get_model_conversion_mapping(model)
    renamings = [one for one in mapping if isinstance(one, WeightRenaming)]
    converters = [one for one in mapping if isinstance(one, WeightConverter)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    memory: dict[str, Any] = model.state_dict()
    grouped: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in base.shapes:
        name, pattern = rename_source_key(
            file, renamings, converters, model.base_model_prefix, memory
        )
        grouped[name][pattern or ""].append(file)
    found = {}
    for name, files in grouped.items():
        converter = by_pattern.get(next(iter(files)))
        patterns = converter.source_patterns if converter else [""]
        found[name] = converter, {one: files[one] for one in patterns if one in files}
    return found


def _unmapped(folder: Path, name: str) -> ModelError:
    return ModelError.of(
        "export.names",
        f"The adapter changes {name}, which cannot be found in the base model's files.",
        "Export the adapter unmerged; merging is not supported for this architecture.",
        where=folder.name,
    )
