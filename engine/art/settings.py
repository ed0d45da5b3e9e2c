"""What ART's `_internal_config` and client config say of model and adapter → our settings. Pure."""

from collections.abc import Mapping
from typing import Any

TAKEN = {
    ("init_args", "max_seq_length"): "model.max_context",
    ("engine_args", "max_model_len"): "model.max_context",
    ("peft_args", "r"): "model.rank",
    ("peft_args", "lora_alpha"): "model.alpha",
    ("trainer_args", "max_grad_norm"): "train.max_grad_norm",
}
"""(section, key) of `_internal_config` → dotted key of project.toml."""


def settings_of(
    model: Any, client_config: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """Settings for a run that begins, and a sentence for everything that has no effect."""
    settings: dict[str, Any] = {}
    told = []
    for section, values in (model._internal_config or {}).items():
        if not isinstance(values, Mapping):
            told.append(f"_internal_config[{section!r}] has no effect here.")
            continue
        for key, value in values.items():
            if name := TAKEN.get((section, key)):
                settings[name] = value
            else:
                told.append(f"_internal_config[{section!r}][{key!r}] has no effect here.")
    told += [f"The client's {name} have no effect here." for name in client_config or {}]
    return settings, told
