"""Loading of a model's weights from its folder, with a new adapter on every linear layer.

In a mixture of experts (MoE) the adapter covers the attention layers and, with
`model.adapt_experts`, the routed experts (`experts.py`). PEFT maps the names of shared and dense
feed-forward layers to those of experts, so they get none. Routers are frozen, and load-balancing
losses are not used in training.
"""

from collections.abc import Callable

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D

from engine.models.architectures import FAMILIES, reads_images
from engine.models.file_checks import FEED_FORWARD
from engine.policy.base import PolicySpec
from engine.policy.torch.model import attention, experts
from engine.policy.torch.model.adapter import LoraLinear
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import ModelError

Loader = Callable[[PolicySpec, torch.dtype, torch.device], PeftModel]
"""Function that loads a model with a new, zero-initialised adapter. Raises ModelError."""


FUSED_OUTPUT = ("falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h")
"""Model types for which PEFT refuses adapters on Mamba's output projection."""


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
        model: PeftModel = get_peft_model(base, _lora_config(spec.model, base))
    except (ValueError, RuntimeError) as error:
        raise not_loadable(spec.model_path, error) from error
    experts.route(model)
    return model


def _load_base(path: str, dtype: torch.dtype) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        kind = (
            AutoModelForImageTextToText if reads_images(config.to_dict()) else AutoModelForCausalLM
        )
        return kind.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation=attention.implementation(config, attention.NAME),
        ).eval()
    except KeyError as error:
        if error.args != (attention.NAME,):
            raise not_loadable(path, error) from error
        raise ModelError.of(
            "model.own_attention",
            "This model has its own attention code, which does not support prefix trees.",
            f"Use a model of these families: {FAMILIES}.",
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


def _lora_config(model: ModelConfig, base: PreTrainedModel) -> LoraConfig:
    config = LoraConfig(
        r=model.rank,
        lora_alpha=model.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules=adapted_layers(base),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in base.modules()),
        target_parameters=experts.target_parameters(base) if model.adapt_experts else None,
        task_type="CAUSAL_LM",
    )
    config._register_custom_module({nn.Linear: LoraLinear})
    return config


def adapted_layers(base: PreTrainedModel) -> list[str]:
    """Names of the layers that get an adapter: all linear ones of the language model except the
    head, the feed-forward layers of a mixture of experts, and the output projections of Mamba
    layers, whose fused kernels read the base weight."""
    decoder = set(base.get_decoder().modules())
    names = [
        name
        for name, layer in base.named_modules()
        if type(layer) in (nn.Linear, Conv1D) and layer in decoder
    ]
    if has_experts(base):
        names = [name for name in names if not FEED_FORWARD & set(name.split("."))]
    if base.config.get_text_config().model_type in FUSED_OUTPUT:
        names = [name for name in names if not name.endswith(".out_proj")]
    return names


def recurrent_layers(base: PreTrainedModel) -> bool:
    """Whether layers of a model have a recurrent state: linear attention, state spaces, short
    convolutions."""
    kinds = getattr(base.config.get_text_config(), "layer_types", None) or []
    parts = base.get_decoder().modules()
    return "linear_attention" in kinds or any(isinstance(part, nn.Conv1d) for part in parts)


def has_experts(base: PreTrainedModel) -> bool:
    """Whether a model has routed experts (MoE)."""
    return any(type(part).__name__.endswith("Experts") for part in base.modules())
