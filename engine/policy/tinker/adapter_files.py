"""Adapter of a cluster as a PEFT folder that other programs load."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.problems import PolicyError
from engine.runtime.files import replace_file

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class AdapterConfig(BaseModel):
    """Part of a cluster's `adapter_config.json` that is believed; the rest is written anew."""

    model_config = ConfigDict(extra="ignore")

    r: int = Field(gt=0)
    lora_alpha: float = Field(gt=0)
    use_rslora: Literal[False] = False
    use_dora: Literal[False] = False


def read_config(folder: Path) -> AdapterConfig:
    """Read the configuration of a downloaded adapter. Raises PolicyError if it is invalid, or of a
    kind other than plain LoRA."""
    try:
        return AdapterConfig.model_validate_json((folder / CONFIG).read_bytes())
    except ValidationError as error:
        raise PolicyError.of(
            "cluster.no_adapter",
            "The cluster's adapter has an invalid adapter_config.json, or is no plain LoRA.",
            "Update the server.",
            detail=str(error)[:2000],
        ) from error


def complete_config(folder: Path, base_name: str) -> None:
    """Write `adapter_config.json` with rank and α of the cluster, the target modules from the names
    of the tensors, and the name of the base model. Raises PolicyError."""
    found = read_config(folder)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": found.r,
        "lora_alpha": found.lora_alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": target_modules(folder / WEIGHTS),
        "inference_mode": True,
    }
    replace_file(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


def target_modules(file: Path) -> list[str]:
    """Names of the adapted layers in a safetensors file of a PEFT adapter, by its header."""
    with file.open("rb") as tensors:
        size = int.from_bytes(tensors.read(8), "little")
        names = json.loads(tensors.read(size)).keys() - {"__metadata__"}
    found = {name.split(".lora_")[0].rpartition(".")[2] for name in names if ".lora_" in name}
    return sorted(found)
