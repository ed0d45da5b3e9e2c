"""Settings and checkpoints that no cluster can carry are refused before a run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.policy.tinker.adapter_files import complete_config
from engine.policy.tinker.refusals import refuse_alpha, refuse_config
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import PolicyError


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"train": {"algorithm": {"entropy": 0.01}}}, "train.algorithm.entropy"),
        (
            {
                "train": {
                    "algorithm": {"credit": {"kind": "value"}, "advantage": {"kind": "reward"}}
                }
            },
            "train.algorithm.credit",
        ),
        ({"train": {"temperature": 0.7}}, "train.temperature"),
        ({"model": {"name": "m", "adapt_experts": True}}, "model.adapt_experts"),
    ],
)
def test_setting_is_refused_by_name(settings: dict[str, Any], where: str) -> None:
    config = ProjectConfig.model_validate({"model": {"name": "m"}, **settings})
    with pytest.raises(PolicyError) as caught:
        refuse_config(config)
    assert caught.value.problem.where == where
    assert caught.value.problem.hint


def test_usual_settings_are_accepted() -> None:
    refuse_config(ProjectConfig.model_validate({"model": {"name": "m"}}))
    refuse_alpha(32, 32)


def test_other_adapter_scale_is_refused() -> None:
    with pytest.raises(PolicyError, match="is 16"):
        refuse_alpha(32, 16)


def test_adapter_config_is_completed(tmp_path: Path) -> None:
    names = [f"base_model.model.model.layers.{n}.mlp.{p}.lora_{s}.weight"
             for n in (0, 1) for p in ("up_proj", "down_proj") for s in "AB"]  # fmt: skip
    save_file({name: torch.ones(1, 1) for name in names}, tmp_path / "adapter_model.safetensors")
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"r": 1, "lora_alpha": 32, "task_type": None, "peft_type": "LORA"}))
    complete_config(tmp_path, "Qwen/Qwen3-8B")
    found = json.loads(file.read_text())
    assert found["target_modules"] == ["down_proj", "up_proj"]
    assert found["base_model_name_or_path"] == "Qwen/Qwen3-8B"
    assert found["task_type"] == "CAUSAL_LM"
