"""What ART's train() can be told, and what becomes of it."""

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
"""The typed dictionaries of `art.dev.model` 0.5.18; test_art.py compares them with the package."""


def asked(**knobs: Any) -> Algorithm:
    return algorithm_of(TrainArguments(**knobs))[0]


def test_its_defaults_are_our_preset() -> None:
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
def test_losses_have_its_bounds(knobs: dict[str, Any], loss: object) -> None:
    assert asked(**knobs).loss == loss


def test_scale_distance_and_correction() -> None:
    assert asked(scale_rewards=False).advantage == GroupMean()
    assert asked(normalize_advantages=False).advantage == GroupMean()
    near = asked(kl_penalty_coef=0.02)
    assert (near.kl, near.kl_in) == (0.02, "advantage")
    corrected = asked(precalculate_logprobs=True, truncated_importance_sampling=3.0)
    assert (corrected.ratio_to, corrected.correction) == ("trainer", TokenCap(cap=3.0))
    plain = asked(precalculate_logprobs=True)
    assert (plain.ratio_to, plain.correction) == ("trainer", NoCorrection())


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_what_would_change_the_update_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"train\({name}=.*is not supported by Atelier"
    ) as refused:
        algorithm_of(TrainArguments(**{name: "geometric_average"}))
    assert refused.value.problem.hint


def test_what_only_says_how_is_answered() -> None:
    told = algorithm_of(TrainArguments(packed_sequence_length=2048, plot_tensors=True))[1]
    assert ["plot_tensors" in told[0], "packed_sequence_length" in told[1]] == [True, True]
    idle = algorithm_of(TrainArguments(truncated_importance_sampling=2.0))[1]
    assert "no effect without precalculate_logprobs" in idle[0]
    with pytest.raises(ConfigError, match="loss_fn='dpo'"):
        algorithm_of(TrainArguments(loss_fn="dpo"))  # type: ignore[arg-type]


def configured(**config: Any) -> tuple[dict[str, Any], list[str]]:
    model = SimpleNamespace(_internal_config=config, base_model="m")
    return settings_of(model, {"server_args": {}})


def test_of_its_model_config_what_we_have_is_taken_and_what_has_no_effect_is_said() -> None:
    settings, told = configured(
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
    assert [sentence.partition(" has")[0] for sentence in told[:3]] == [
        "_internal_config['init_args']['load_in_4bit']",
        "_internal_config['trainer_args']['logging_steps']",
        "_internal_config['trainer_gpu_ids']",
    ]
    assert told[3] == "The client's server_args have no effect in Atelier."


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
def test_of_its_model_config_what_would_change_the_result_is_refused(
    config: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match="changes the training") as refused:
        configured(**config)
    assert refused.value.problem.hint


def test_every_key_of_its_model_config_is_known() -> None:
    """Beside those of vLLM and of transformers' trainer, whose other keys have no effect."""
    for section, keys in KEYS.items():
        for key in keys:
            place = (section, key)
            known = place in TAKEN or place in REFUSED or key in NO_EFFECT.get(section, ())
            assert known or key in ("target_modules", "model_name"), place


SCRIPT = """
import art
from engine.integrations.art import AtelierBackend

async def main(rate):
    backend = AtelierBackend()
    other.train(model, groups, kimi_k2_tau=1.0)
    await backend.train(model, groups, learning_rate=rate, {knob})
"""


@pytest.mark.parametrize(
    ("knob", "refused"),
    [
        ("kimi_k2_tau=1.0", True),
        ("loss_fn='dpo'", True),
        ("never_heard_of=1", True),
        ("kimi_k2_tau=rate", False),
        ("epsilon=0.3", False),
    ],
)
def test_what_a_script_will_ask_for_is_refused_when_its_model_is_registered(
    tmp_path: Path, knob: str, refused: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(knob=knob))
    names: dict[str, Any] = {"__file__": str(script)}
    exec("from engine.integrations.art import AtelierBackend; backend = AtelierBackend()", names)
    model = SimpleNamespace(trainable=True, log=None, _internal_config=None)
    if refused:
        with pytest.raises(ConfigError):
            asyncio.run(names["backend"].register(model))
    else:
        asyncio.run(names["backend"].register(model))


def test_without_a_file_nothing_is_looked_for(tmp_path: Path) -> None:
    assert train_arguments(None) == []
    assert train_arguments(str(tmp_path / "none.py")) == []
    (tmp_path / "broken.py").write_text("def (")
    assert train_arguments(str(tmp_path / "broken.py")) == []


def test_figures_have_its_names_where_it_has_some() -> None:
    ours = {"loss": 0.5, "grad_norm": 1.0, "reward/mean": 0.25}
    assert training_metrics(ours, False, 1) == {
        "loss/train": 0.5,
        "loss/grad_norm": 1.0,
        "atelier/reward/mean": 0.25,
        "data/step_num_gradient_steps": 1.0,
    }
    assert training_metrics({}, True, 1) == {"data/step_num_gradient_steps": 0.0}


def test_a_backend_says_what_the_one_table_has_for_it() -> None:
    """And nothing of what ART measures itself, which would take its place."""
    ours = {name: 1.0 for row in NAMES for name in row.ours if "*" not in name}
    told = training_metrics(ours | {"unscored": 2.0}, False, 1)
    theirs = {name for name in told if not name.startswith("atelier/")}
    assert theirs == {
        *(row.art for row in NAMES if row.art.startswith("loss/")),
        "throughput/train_tok_per_sec",
        "data/step_trainer_tokens",
        "time/step_trainer_s",
        "data/step_num_gradient_steps",
    }
    assert told["loss/clipped_token_fraction"] == 2.0
    assert {"atelier/clip/low", "atelier/clip/high", "atelier/unscored"} <= set(told)
    assert {"atelier/loss", "atelier/tokens_per_s/train"}.isdisjoint(told)
