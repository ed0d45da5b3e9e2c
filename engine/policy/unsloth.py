"""Policy process with a model loaded by Unsloth.

Started as `python -P isolated.py engine.policy.unsloth LINE LIFE`.

Unsloth loads the model in 4, 8 or 16 bits and adds its adapter and kernels, by its public
functions; trees, losses and sampling are the engine's. On NVIDIA GPUs it also replaces the forward
methods of attention, layer and model by its own, which do not support segments. Those are restored
to transformers' code, and remaining differences are detected by a trial run.
"""

# ruff: noqa: I001 - Unsloth wants to be imported before what it changes

import contextlib
import importlib
from collections.abc import Iterator
from types import ModuleType

from unsloth import FastLanguageModel
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from engine.policy.base import PolicySpec
from engine.policy.torch.model import attention
from engine.policy.torch.model.attention import Plan
from engine.policy.torch.model.loading import not_loadable
from engine.policy.torch.serve import main
from engine.policy.torch.training.prefix_tree import shares_prefixes
from engine.protocol.problems import ModelError

QUANTISED = {"8bit": "Linear8bitLt", "4bit": "Linear4bit"}
"""Names of the layer classes of bitsandbytes."""
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def load(spec: PolicySpec, dtype: torch.dtype, device: torch.device) -> PeftModel:
    """Load a model with Unsloth. Raises ModelError if that fails or prefix trees are
    unsupported."""
    try:
        config = AutoConfig.from_pretrained(spec.model_path, local_files_only=True)
        with forwards_kept(modelling(config)):
            base, _ = FastLanguageModel.from_pretrained(
                model_name=spec.model_path,
                max_seq_length=spec.model.max_context,
                dtype=dtype,
                load_in_4bit=spec.weights == "4bit",
                load_in_8bit=spec.weights == "8bit",
                local_files_only=True,
                use_gradient_checkpointing=False,
            )
            trained = FastLanguageModel.get_peft_model(
                base,
                r=spec.model.rank,
                lora_alpha=spec.model.alpha,
                lora_dropout=0.0,
                bias="none",
                target_modules=[name for name in ADAPTED if _has(base, name)],
                use_gradient_checkpointing=False,
                random_state=spec.seed,
            )
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        raise not_loadable(spec.model_path, error) from error
    prove_storage(trained, spec.weights)
    own_attention(trained.get_base_model())
    prove_segments(trained.eval(), device)
    return trained


@contextlib.contextmanager
def forwards_kept(module: ModuleType) -> Iterator[None]:
    """Undo, after the block, changes of forward methods and classes in a transformers module."""
    classes = {name: kind for name, kind in vars(module).items() if _is_layer(kind)}
    forwards = {kind: kind.forward for kind in classes.values()}
    try:
        yield
    finally:
        for name, kind in classes.items():
            setattr(module, name, kind)
            kind.forward = forwards[kind]


def own_attention(base: PreTrainedModel) -> None:
    """Replace a model's attention with Atelier's, and its position embeddings with those of
    transformers."""
    module, decoder = modelling(base.config), base.get_decoder()
    for name, part in list(decoder.named_modules()):
        own = getattr(module, type(part).__name__, None)
        if name.endswith("rotary_emb") and own is not None and type(part) is not own:
            decoder.set_submodule(name, own(config=base.config).to(base.device))
    base.set_attn_implementation(attention.implementation(base.config, attention.NAME))


def prove_storage(trained: PeftModel, weights: str) -> None:
    """Raise ModelError if Unsloth did not quantize the weights as `weights` (`8bit`, `4bit`) says;
    `full` is not checked."""
    kinds = {type(part).__name__ for part in trained.get_base_model().modules()}
    if weights != "full" and QUANTISED[weights] not in kinds:
        raise ModelError.of(
            "model.weights_not_stored",
            f"Unsloth did not quantize this model to {weights[0]} bits on this machine.",
            "Set backend.weights to full, or train on an NVIDIA GPU.",
            where="backend.weights",
        )


def prove_segments(trained: PeftModel, device: torch.device) -> None:
    """Raise ModelError if the model does not support prefix trees: its hidden states for a tree of
    two branches differ from those for the two sequences."""
    decoder = trained.get_base_model().get_decoder()

    def hidden(plan: Plan) -> Tensor:
        found = decoder(
            input_ids=plan.tokens_1S, position_ids=plan.positions_1S, use_cache=False, plan=plan
        )
        return found.last_hidden_state[0]  # type: ignore[no-any-return]

    try:
        layers = trained.config.get_text_config().num_hidden_layers
        seen = shares_prefixes(hidden, layers, device)
    except (TypeError, AssertionError, RuntimeError):  # a forward that does not know of plans
        seen = False
    if not seen:
        raise ModelError.of(
            "model.segments_unseen",
            f"Unsloth's attention code for {type(trained.get_base_model()).__name__} does not "
            "support prefix trees: rollouts of a group would attend to each other.",
            "Set backend.trainer to torch for this model.",
            where="backend.trainer",
        )


def modelling(config: PreTrainedConfig) -> ModuleType:
    """Transformers module that defines the model's classes."""
    return importlib.import_module(AutoModelForCausalLM._model_mapping[type(config)].__module__)


def _is_layer(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, nn.Module)


def _has(model: nn.Module, leaf: str) -> bool:
    return any(name.rpartition(".")[2] == leaf for name, _ in model.named_modules())


if __name__ == "__main__":
    main(load)
