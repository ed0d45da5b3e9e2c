"""Loading of a model's weights from its folder, with a new adapter on every linear layer."""

from collections.abc import Callable

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.policy.base import PolicySpec
from engine.policy.torch.model import attention
from engine.policy.torch.model.adapter import LoraLinear
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ModelError

Loader = Callable[[PolicySpec, torch.dtype, torch.device], PeftModel]
"""Function that loads a model with a new, zero-initialised adapter. Raises ModelError."""


def load(spec: PolicySpec, dtype: torch.dtype, device: torch.device) -> PeftModel:
    """Load a model by transformers and PEFT, with the engine's LoRA layers, onto a device."""
    if spec.weights != "full":
        raise ModelError.of(
            "model.needs_unsloth",
            f"Only Unsloth loads {spec.weights} weights, but backend.trainer is torch.",
            "Set backend.trainer to unsloth, or backend.weights to full.",
            where="backend.weights",
        )
    base = _load_base(spec.model_path, dtype).to(device)
    torch.manual_seed(spec.seed)
    try:
        return get_peft_model(base, _lora_config(spec.model))  # type: ignore[no-any-return]
    except (ValueError, RuntimeError) as error:
        raise not_loadable(spec.model_path, error) from error


def _load_base(path: str, dtype: torch.dtype) -> PreTrainedModel:
    try:
        return AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation=attention.NAME,
        ).eval()
    except KeyError as error:
        if error.args != (attention.NAME,):
            raise not_loadable(path, error) from error
        raise ModelError.of(
            "model.own_attention",
            "This model has its own attention code, which does not support prefix trees.",
            "Use a model of the Llama, Qwen, SmolLM, Mistral, Phi or Gemma 3 family.",
            where=path,
        ) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise not_loadable(path, error) from error


def not_loadable(path: str, error: Exception) -> ModelError:
    return ModelError.of(
        "model.not_loadable",
        f"The model cannot be loaded: {(str(error).strip() or repr(error)).splitlines()[0][:300]}",
        "Use a causal language model that transformers supports.",
        where=path,
        detail=str(error)[:4000],
    )


def _lora_config(model: ModelConfig) -> LoraConfig:
    config = LoraConfig(
        r=model.rank,
        lora_alpha=model.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    config._register_custom_module({nn.Linear: LoraLinear})
    return config
