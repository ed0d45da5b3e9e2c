"""Convert ART's `_internal_config` (model, adapter, optimizer) into Atelier's settings. Pure.

Every key is one of four kinds: converted, without effect on the result (a sentence says so), equal
to what Atelier does anyway, or refused because it would change the result. Unknown keys are
refused. ART's keys and defaults: openpipe-art 0.5.18, `art.dev.model` and
`art.dev.get_model_config`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.protocol.problems import ConfigError


class Refusal(NamedTuple):
    """A hint for a key that is refused, because it would change the result."""

    hint: str
    same: tuple[Any, ...] = ()
    """Values that are accepted, because ART then does the same as Atelier."""


TAKEN = {
    ("init_args", "max_seq_length"): "model.max_context",
    ("engine_args", "max_model_len"): "model.max_context",
    ("peft_args", "r"): "model.rank",
    ("peft_args", "lora_alpha"): "model.alpha",
    ("trainer_args", "max_grad_norm"): "train.algorithm.max_grad_norm",
}
"""(section, key) of `_internal_config` → dotted key of project.toml."""

LEAVE_OUT = "Leave it out."
WEIGHTS = 'Leave it out; to quantise, use AtelierBackend(settings={"backend.weights": "4bit"}).'
DTYPE = 'Leave it out; to set it, use AtelierBackend(settings={"model.dtype": "float32"}).'
TEMPLATE = "Save the model with the chat template that you want, and set base_model to its folder."
PLAIN_LORA = "Leave it out: Atelier trains a plain LoRA adapter on all linear layers."
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
DECAY = (
    "Leave it out: ART 0.5.18 ignores it, and both ART and Atelier use 0.1 in RL steps. To change "
    'it, use AtelierBackend(settings={"train.algorithm.weight_decay": …}).'
)

REFUSED: dict[tuple[str, str], Refusal] = {
    ("", "chat_template"): Refusal(TEMPLATE),
    ("", "chat_template_path"): Refusal(TEMPLATE),
    ("", "chat_template_kwargs"): Refusal(TEMPLATE, ({},)),
    ("", "chat_template_tool_schema_format"): Refusal(TEMPLATE, ("default",)),
    ("", "chat_template_content_format"): Refusal(TEMPLATE, ("auto",)),
    ("init_args", "dtype"): Refusal(DTYPE, (None,)),
    ("init_args", "load_in_8bit"): Refusal(WEIGHTS, (False,)),
    ("init_args", "full_finetuning"): Refusal(
        "Leave it out: Atelier trains only an adapter.", (False,)
    ),
    ("init_args", "rope_scaling"): Refusal(
        "Save the model with this scaling in its config.", (None,)
    ),
    ("init_args", "trust_remote_code"): Refusal(
        "Leave it out: Atelier never runs a model's own code.", (False,)
    ),
    ("init_args", "resize_model_vocab"): Refusal(
        "Save the model with the resized vocabulary.", (None,)
    ),
    ("init_args", "revision"): Refusal("Set base_model to the folder of that revision.", (None,)),
    ("engine_args", "model"): Refusal("Set base_model to this model."),
    ("engine_args", "tokenizer"): Refusal(
        "Save the model and its tokenizer in one folder.", (None,)
    ),
    ("engine_args", "dtype"): Refusal(DTYPE, ("auto",)),
    ("engine_args", "quantization"): Refusal(WEIGHTS, (None,)),
    ("engine_args", "rope_scaling"): Refusal(
        "Save the model with this scaling in its config.", (None,)
    ),
    ("engine_args", "hf_overrides"): Refusal(
        "Save the model with these settings in its config.", (None, {})
    ),
    ("engine_args", "trust_remote_code"): Refusal(
        "Leave it out: Atelier never runs a model's own code.", (False,)
    ),
    ("engine_args", "revision"): Refusal("Set base_model to the folder of that revision.", (None,)),
    ("engine_args", "generation_config"): Refusal(
        "Set sampling parameters in each request.", ("vllm",)
    ),
    ("engine_args", "override_generation_config"): Refusal(
        "Set sampling parameters in each request.", (None, {})
    ),
    ("peft_args", "lora_dropout"): Refusal(PLAIN_LORA, (0, 0.0)),
    ("peft_args", "bias"): Refusal(PLAIN_LORA, ("none",)),
    ("peft_args", "layers_to_transform"): Refusal(PLAIN_LORA, (None,)),
    ("peft_args", "layers_pattern"): Refusal(PLAIN_LORA, (None,)),
    ("peft_args", "use_rslora"): Refusal("Leave it out, and multiply lora_alpha by √r.", (False,)),
    ("peft_args", "modules_to_save"): Refusal(PLAIN_LORA, (None, [])),
    ("peft_args", "init_lora_weights"): Refusal(PLAIN_LORA, (True,)),
    ("peft_args", "loftq_config"): Refusal(PLAIN_LORA, (None, {})),
    ("trainer_args", "weight_decay"): Refusal(DECAY, (0.1,)),
    ("trainer_args", "adam_beta1"): Refusal(
        "Leave it out: Atelier uses AdamW with betas (0.9, 0.99).", (0.9,)
    ),
    ("trainer_args", "adam_beta2"): Refusal(
        "Leave it out: Atelier uses AdamW with betas (0.9, 0.99).", (0.99,)
    ),
    ("trainer_args", "adam_epsilon"): Refusal(
        "Leave it out: Atelier uses AdamW with epsilon 1e-8.", (1e-8,)
    ),
    ("trainer_args", "optim"): Refusal(
        "Leave it out: Atelier uses AdamW with float32 moments.",
        ("paged_adamw_8bit", "adamw_8bit", "adamw_bnb_8bit", "adamw_torch", "adamw_torch_fused",
         "paged_adamw_32bit"),
    ),
    ("trainer_args", "gradient_accumulation_steps"): Refusal(
        "Leave it out: Atelier makes one optimizer update per step.", (1,)
    ),
    ("trainer_args", "neftune_noise_alpha"): Refusal(LEAVE_OUT, (None,)),
}  # fmt: skip

NO_EFFECT = {
    "": ("trainer_gpu_ids", "inference_gpu_ids", "rollout_weights_mode", "allow_unvalidated_arch",
         "tinker_args", "tinker_native_args"),
    "init_args": (
        "load_in_4bit", "load_in_16bit", "token", "device_map", "fix_tokenizer",
        "use_gradient_checkpointing", "use_exact_model_name", "fast_inference",
        "gpu_memory_utilization", "float8_kv_cache",
        "random_state", "max_lora_rank", "disable_log_stats", "enable_prefix_caching", "use_async",
    ),
    "peft_args": (
        "use_gradient_checkpointing", "random_state", "max_seq_length", "temporary_location",
    ),
}  # fmt: skip
"""Keys by section about speed, memory, paths or seeds, which do not change the result. All other
keys of `engine_args` and `trainer_args` count as such: settings of the vLLM server, and of the
trainer, whose learning rate and schedule ART overrides in every step."""


def settings_of(
    model: Any, client_config: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """Return settings for a new run from those of an ART model, and a message for every ignored
    key, those of `client_config` included. Raises ConfigError for a key that would change the
    result and is not supported."""
    settings: dict[str, Any] = {}
    notes: list[str] = []
    for section, values in (model._internal_config or {}).items():
        named = values if isinstance(values, Mapping) and section.endswith("_args") else None
        if named is None or section in NO_EFFECT[""]:
            _sort("", section, values, model.base_model, settings, notes)
        else:
            for key, value in named.items():
                _sort(section, key, value, model.base_model, settings, notes)
    notes += [f"The client option {name} has no effect in Atelier." for name in client_config or {}]
    return settings, notes


def _sort(
    section: str, key: str, value: Any, base_model: str, settings: dict[str, Any], notes: list[str]
) -> None:
    """Convert, ignore or refuse one key. Raises ConfigError."""
    place = f"_internal_config[{section!r}][{key!r}]" if section else f"_internal_config[{key!r}]"
    if name := TAKEN.get((section, key)):
        settings[name] = value
    elif (section, key) == ("init_args", "model_name"):
        if value != base_model:
            raise _refused(place, value, "Set base_model to this model.")
    elif (section, key) == ("peft_args", "target_modules"):
        if not isinstance(value, list | tuple) or set(value) != set(LINEAR):
            raise _refused(place, value, PLAIN_LORA)
    elif refusal := REFUSED.get((section, key)):
        if value not in refusal.same:
            raise _refused(place, value, refusal.hint)
    elif key in NO_EFFECT.get(section, ()) or section in ("engine_args", "trainer_args"):
        notes.append(f"{place} has no effect in Atelier.")
    else:
        raise _refused(place, value, LEAVE_OUT)


def _refused(place: str, value: Any, hint: str) -> ConfigError:
    return ConfigError.of(
        "art.config",
        f"{place} = {str(value)[:80]!r} changes the training, but Atelier does not support it.",
        hint,
        where=place,
    )
