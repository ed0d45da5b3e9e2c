"""Settings and checkpoints that no cluster can carry are refused before a run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.policy.tinker.adapter_files import complete_config
from engine.policy.tinker.refusals import refuse_alpha, refuse_config, require_pinned
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import PolicyError
from engine.protocol.records.clusters import ClusterProfile


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


def test_staleness_needs_pinned_snapshots() -> None:
    profile = ClusterProfile(
        name="box", client="tinker 0.24.1", model="m", sequences="mean", tokens="mean",
        clips=False, pinned=False, repeats=True, alpha=32, logprob_gap=0.0,
    )  # fmt: skip
    require_pinned(profile, 0)
    require_pinned(profile.model_copy(update={"pinned": True}), 1)
    with pytest.raises(PolicyError, match="staleness to 0"):
        require_pinned(profile, 1)
    assert profile.words.startswith("mean over sequences · mean over tokens · ignores clipping")


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


@pytest.mark.parametrize(
    "config", [{}, {"r": 0, "lora_alpha": 32}, {"r": 4, "lora_alpha": 32, "use_rslora": True}]
)
def test_adapter_that_is_no_plain_lora_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(PolicyError, match="no plain LoRA"):
        complete_config(tmp_path, "m")
