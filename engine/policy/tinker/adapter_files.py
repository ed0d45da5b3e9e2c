"""Adapter of a cluster as a PEFT folder that other programs load."""

import json
from pathlib import Path

from engine.runtime.files import replace_file


def complete_config(folder: Path, base_name: str) -> None:
    """Fill in what a cluster leaves out of `adapter_config.json`: the target modules, from the
    names of the tensors, and the name of the base model."""
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text())
    if not config.get("target_modules"):
        config["target_modules"] = target_modules(folder / "adapter_model.safetensors")
    config["base_model_name_or_path"] = base_name
    config["task_type"] = config.get("task_type") or "CAUSAL_LM"
    replace_file(file, json.dumps(config, indent=2, sort_keys=True) + "\n")


def target_modules(file: Path) -> list[str]:
    """Names of the adapted layers in a safetensors file of a PEFT adapter, by its header."""
    with file.open("rb") as tensors:
        size = int.from_bytes(tensors.read(8), "little")
        names = json.loads(tensors.read(size)).keys() - {"__metadata__"}
    found = {name.split(".lora_")[0].rpartition(".")[2] for name in names if ".lora_" in name}
    return sorted(found)
