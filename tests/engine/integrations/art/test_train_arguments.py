"""Mapping of ART's train() arguments and model config to Atelier's settings."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.integrations.art.logging import training_metrics
from engine.integrations.art.settings import LINEAR, NO_EFFECT, REFUSED, TAKEN, settings_of
from engine.integrations.art.train_arguments import (
    INSTEAD,
    TrainArguments,
    algorithm_of,
    train_arguments,
)
from engine.protocol.config.algorithm import (
    Algorithm,
    Cispo,
    Clipped,
    GroupMean,
    Gspo,
    NoCorrection,
    TokenCap,
)
from engine.protocol.problems import ConfigError
from engine.protocol.records.art_names import NAMES

KEYS = {
    "": (
        "tinker_args", "tinker_native_args", "trainer_gpu_ids", "inference_gpu_ids",
        "rollout_weights_mode", "chat_template_kwargs", "chat_template", "chat_template_path",
        "chat_template_content_format", "chat_template_tool_schema_format",
        "allow_unvalidated_arch",
    ),
    "init_args": (
        "model_name", "max_seq_length", "dtype", "load_in_4bit", "load_in_8bit", "load_in_16bit",
        "full_finetuning", "token", "device_map", "rope_scaling", "fix_tokenizer",
        "trust_remote_code", "use_gradient_checkpointing", "resize_model_vocab", "revision",
        "use_exact_model_name", "fast_inference", "gpu_memory_utilization", "float8_kv_cache",
        "random_state", "max_lora_rank", "disable_log_stats", "enable_prefix_caching", "use_async",
    ),
    "peft_args": (
        "r", "target_modules", "lora_alpha", "lora_dropout", "bias", "layers_to_transform",
        "layers_pattern", "use_gradient_checkpointing", "random_state", "max_seq_length",
        "use_rslora", "modules_to_save", "init_lora_weights", "loftq_config", "temporary_location",
    ),
}  # fmt: skip
"""Keys of `art.dev.model` 0.5.18's typed dictionaries; test_art.py compares with the package."""


def mapped_algorithm(**knobs: Any) -> Algorithm:
    return algorithm_of(TrainArguments(**knobs))[0]


def test_default_arguments_equal_the_art_preset() -> None:
    assert algorithm_of(TrainArguments()) == (Algorithm(preset="art"), [])
    assert TrainArguments().learning_rate == 5e-6


@pytest.mark.parametrize(
    ("knobs", "loss"),
    [
        ({"epsilon": 0.5}, Cispo(low=0.5, high=4.0)),
        ({"epsilon": 2.0, "epsilon_high": 3.0}, Cispo(low=1.0, high=3.0)),
        ({"loss_fn": "ppo"}, Clipped(low=0.2, high=0.2)),
        ({"loss_fn": "ppo", "epsilon": 0.1}, Clipped(low=0.1, high=0.1)),
        ({"loss_fn": "ppo", "epsilon_high": 0.28}, Clipped(low=0.2, high=0.28)),
        ({"loss_fn": "ppo", "epsilon_high": 0.0}, Clipped(low=0.2, high=0.0)),
        (
            {"loss_fn": "ppo", "importance_sampling_level": "sequence", "epsilon": 3e-4},
            Gspo(low=3e-4, high=3e-4),
        ),
    ],
)
def test_loss_bounds_are_taken_from_the_arguments(knobs: dict[str, Any], loss: object) -> None:
    assert mapped_algorithm(**knobs).loss == loss


def test_scaling_kl_and_correction_are_mapped() -> None:
    assert mapped_algorithm(scale_rewards=False).advantage == GroupMean()
    assert mapped_algorithm(normalize_advantages=False).advantage == GroupMean()
    with_kl = mapped_algorithm(kl_penalty_coef=0.02)
    assert (with_kl.kl, with_kl.kl_in) == (0.02, "advantage")
    corrected = mapped_algorithm(precalculate_logprobs=True, truncated_importance_sampling=3.0)
    assert (corrected.ratio_to, corrected.correction) == ("trainer", TokenCap(cap=3.0))
    plain = mapped_algorithm(precalculate_logprobs=True)
    assert (plain.ratio_to, plain.correction) == ("trainer", NoCorrection())


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_unsupported_argument_raises_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"train\({name}=.*is not supported by Atelier") as error:
        algorithm_of(TrainArguments(**{name: "geometric_average"}))
    assert error.value.problem.hint


def test_ineffective_arguments_give_a_notice() -> None:
    notices = algorithm_of(TrainArguments(packed_sequence_length=2048, plot_tensors=True))[1]
    assert ["plot_tensors" in notices[0], "packed_sequence_length" in notices[1]] == [True, True]
    idle = algorithm_of(TrainArguments(truncated_importance_sampling=2.0))[1]
    assert "no effect without precalculate_logprobs" in idle[0]
    with pytest.raises(ConfigError, match="ART has no loss function 'dpo'"):
        algorithm_of(TrainArguments(loss_fn="dpo"))  # type: ignore[arg-type]


def map_config(**config: Any) -> tuple[dict[str, Any], list[str]]:
    model = SimpleNamespace(_internal_config=config, base_model="m")
    return settings_of(model, {"server_args": {}})


def test_model_config_is_mapped_and_ineffective_keys_are_named() -> None:
    settings, notices = map_config(
        init_args={"max_seq_length": 4096, "load_in_4bit": True, "model_name": "m"},
        peft_args={"r": 16, "lora_alpha": 32, "target_modules": list(LINEAR), "bias": "none"},
        trainer_args={"max_grad_norm": 0.5, "weight_decay": 0.1, "logging_steps": 3},
        trainer_gpu_ids=[0],
    )
    assert settings == {
        "model.max_context": 4096,
        "model.rank": 16,
        "model.alpha": 32,
        "train.algorithm.max_grad_norm": 0.5,
    }
    assert [sentence.partition(" has")[0] for sentence in notices[:3]] == [
        "_internal_config['init_args']['load_in_4bit']",
        "_internal_config['trainer_args']['logging_steps']",
        "_internal_config['trainer_gpu_ids']",
    ]
    assert notices[3] == "The client option server_args has no effect in Atelier."


@pytest.mark.parametrize(
    "config",
    [
        {"peft_args": {"target_modules": ["q_proj"]}},
        {"peft_args": {"lora_dropout": 0.1}},
        {"peft_args": {"never_heard_of": 1}},
        {"trainer_args": {"weight_decay": 0.0}},
        {"trainer_args": {"adam_beta2": 0.95}},
        {"trainer_args": {"optim": "lion_8bit"}},
        {"init_args": {"model_name": "another"}},
        {"init_args": {"load_in_8bit": True}},
        {"engine_args": {"quantization": "fp8"}},
        {"chat_template": "x"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"never_heard_of": 1},
        {"peft_args": 7},
    ],
    ids=str,
)
def test_unsupported_model_config_raises_config_error(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="changes the training") as error:
        map_config(**config)
    assert error.value.problem.hint


def test_every_key_of_the_model_config_is_handled() -> None:
    """Keys of vLLM and of transformers' trainer are excluded; they have no effect."""
    for section, keys in KEYS.items():
        for key in keys:
            key_path = (section, key)
            is_handled = (
                key_path in TAKEN or key_path in REFUSED or key in NO_EFFECT.get(section, ())
            )
            assert is_handled or key in ("target_modules", "model_name"), key_path


SCRIPT = """
import art
from engine.integrations.art import AtelierBackend

async def main(rate):
    backend = AtelierBackend()
    other.train(model, groups, kimi_k2_tau=1.0)
    await backend.train(model, groups, learning_rate=rate, {knob})
"""


@pytest.mark.parametrize(
    ("knob", "is_rejected"),
    [
        ("kimi_k2_tau=1.0", True),
        ("loss_fn='dpo'", True),
        ("never_heard_of=1", True),
        ("kimi_k2_tau=rate", False),
        ("epsilon=0.3", False),
    ],
)
def test_unsupported_argument_in_script_is_rejected_on_register(
    tmp_path: Path, knob: str, is_rejected: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(knob=knob))
    names: dict[str, Any] = {"__file__": str(script)}
    exec("from engine.integrations.art import AtelierBackend; backend = AtelierBackend()", names)
    model = SimpleNamespace(trainable=True, log=None, _internal_config=None)
    if is_rejected:
        with pytest.raises(ConfigError):
            asyncio.run(names["backend"].register(model))
    else:
        asyncio.run(names["backend"].register(model))


def test_missing_or_broken_script_has_no_arguments(tmp_path: Path) -> None:
    assert train_arguments(None) == []
    assert train_arguments(str(tmp_path / "none.py")) == []
    (tmp_path / "broken.py").write_text("def (")
    assert train_arguments(str(tmp_path / "broken.py")) == []


def test_training_metrics_use_art_names() -> None:
    ours = {"loss": 0.5, "grad_norm": 1.0, "reward/mean": 0.25}
    assert training_metrics(ours, False, 1) == {
        "loss/train": 0.5,
        "loss/grad_norm": 1.0,
        "atelier/reward/mean": 0.25,
        "data/step_num_gradient_steps": 1.0,
    }
    assert training_metrics({}, True, 1) == {"data/step_num_gradient_steps": 0.0}


def test_training_metrics_cover_the_name_table() -> None:
    """Metrics that ART measures itself are omitted, since ours would replace them."""
    ours = {name: 1.0 for row in NAMES for name in row.ours if "*" not in name}
    notices = training_metrics(ours | {"unscored": 2.0}, False, 1)
    art_names = {name for name in notices if not name.startswith("atelier/")}
    assert art_names == {
        *(row.art for row in NAMES if row.art.startswith("loss/")),
        "throughput/train_tok_per_sec",
        "data/step_trainer_tokens",
        "time/step_trainer_s",
        "data/step_num_gradient_steps",
    }
    assert notices["loss/clipped_token_fraction"] == 2.0
    assert {"atelier/clip/low", "atelier/clip/high", "atelier/unscored"} <= set(notices)
    assert {"atelier/loss", "atelier/tokens_per_s/train"}.isdisjoint(notices)
