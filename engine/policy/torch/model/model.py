"""Base model with a trained LoRA adapter."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import torch
from peft.utils import set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from engine.hardware.flops import ModelShape
from engine.hardware.forecast import copy_bytes
from engine.policy.base import IMAGE_ERRORS, PolicySpec
from engine.policy.torch.machine_limits import Limits, limits, shape_of
from engine.policy.torch.model.attention import Plan
from engine.policy.torch.model.grammar import Grammars
from engine.policy.torch.model.head import UNCHANGED, LogitTransform, SelectedLogProb
from engine.policy.torch.model.images import ImageTokens, R
from engine.policy.torch.model.linear import Packed, pack, packed_linear
from engine.policy.torch.model.loading import Loader, load, recurrent_layers
from engine.policy.torch.model.value_head import ValueHead
from engine.policy.torch.model.verification import PROBE_TOKENS, verify_forward
from engine.policy.torch.sampling.fused_lora import ROWS, Bundles
from engine.policy.torch.sampling.kv_cache import Extension, ExtensionPlan, KeyValueCache
from engine.policy.torch.training.prefix_tree import TreePlan, grow, shares_prefixes
from engine.protocol.problems import ModelError, PolicyError

ADAPTER_FILE = "adapter_model.safetensors"


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def pick_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """Precision of the frozen weights: `wanted` or, for `auto`, bfloat16 if the device computes it
    natively (emulated, it is 30–200× slower), else float32."""
    if wanted != "auto":
        return getattr(torch, wanted)
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


class LoraModel:
    """Base model with a trained LoRA adapter; sampler and trainer run the same weights through it.

    The adapter is not merged into the base for sampling: in bfloat16 the rounding of merged weights
    moves log-probs by 0.1 to 0.2 nats per token, several times the difference of the two forward
    passes.
    """

    def __init__(self, spec: PolicySpec, load: Loader = load) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.device = pick_device()
        self.dtype = pick_dtype(spec.model.dtype, self.device)
        self._known_limits, self._folder = spec.limits, Path(spec.model_path)
        self.trained = load(spec, self.dtype, self.device)
        base = self.trained.get_base_model()
        self._transform = LogitTransform.of(base.config.get_text_config())
        self.images = ImageTokens(base) if hasattr(base, "get_image_features") else None
        """Images of requests; None if the model reads text only."""
        self._recomputed = _checkpointed_layers(base) if spec.recompute else []
        self.trained.eval()  # no dropout anywhere: sampler and trainer compute the same function
        verify_forward(self, spec.model.max_context)
        self.eos_tokens = _eos_tokens(base)
        self.value_head: ValueHead | None = None
        if spec.value_lr is not None:
            hidden = base.config.get_text_config().hidden_size
            self.value_head = ValueHead(hidden, spec.value_lr, self.device)

    @property
    def adapter(self) -> dict[str, nn.Parameter]:
        return {n: p for n, p in self.trained.named_parameters() if p.requires_grad}

    def parameters(self) -> int:
        return sum(p.numel() for p in self.trained.parameters())

    def with_images(self, request: R) -> R:
        """Request or item whose placeholder tokens are replaced by the token ids of its images.
        Raises PolicyError if it has images that the model cannot read."""
        if self.images:
            return self.images.applied(request)
        if request.images:
            raise PolicyError.of(
                f"{IMAGE_ERRORS}unsupported",
                "This model was loaded without a vision model, so it cannot read images.",
                "Send text, or use a Qwen-VL model with backend.trainer torch.",
            )
        return request

    @cached_property
    def shape(self) -> ModelShape:
        return shape_of(self.trained, self.dtype)

    @cached_property
    def shares_prefixes(self) -> bool:
        """Whether prefix trees are computed exactly; if not, sequences are computed separately."""
        layers = self.trained.config.get_text_config().num_hidden_layers
        return shares_prefixes(self.hidden, layers, self.device, self.images)

    @property
    def unshared_reason(self) -> str:
        """Why prefixes are not shared, as a clause; empty if they are."""
        if self.shares_prefixes:
            return ""
        if recurrent_layers(self.trained.get_base_model()):
            return "layers of this model have a state that cannot branch (linear attention)"
        return "the code of this model in transformers does not support it"

    @cached_property
    def limits(self) -> Limits:
        """Peak rates of this machine in this precision, from the specification or measured at the
        first call (half a second)."""
        return (
            Limits(*self._known_limits) if self._known_limits else limits(self.device, self.dtype)
        )

    @cached_property
    def grammars(self) -> Grammars:
        """Compiled grammars for this model's tokenizer."""
        return Grammars(self._folder, len(self._head), self.eos_tokens)

    @cached_property
    def _copies(self) -> tuple[Bundles, Packed | Tensor] | None:
        """Packed copies of layers and head for sampling; None if memory is short."""
        if not copy_bytes(self.shape, free_bytes(self.device)):
            return None
        probe = TreePlan(grow([list(range(PROBE_TOKENS))]), self.device, self.images)
        return Bundles(self.trained, lambda: self.hidden(probe)), pack(self._head, ROWS)

    @property
    def _head(self) -> Tensor:
        return self.trained.get_base_model().get_output_embeddings().weight

    @property
    def _head_bias(self) -> Tensor | None:
        """Bias [V] of the head (Phi-1 and 2, GPT-J, CodeGen); None for most models."""
        return getattr(self.trained.get_base_model().get_output_embeddings(), "bias", None)

    def sampled_hidden(self, plan: Plan) -> Tensor:
        """Final hidden states [S, H] like `hidden`, without gradients, by packed weights."""
        if self._copies is None:
            return self.hidden(plan)
        with self._copies[0].used():
            return self.hidden(plan)

    def hidden(self, plan: Plan) -> Tensor:
        """Final hidden states [S, H] of a plan's tokens, with the adapter."""
        decoder = self.trained.get_base_model().get_decoder()
        return decoder(
            **self._inputs(plan), position_ids=plan.positions_1S, use_cache=False, plan=plan
        ).last_hidden_state[0]

    def _inputs(self, plan: Plan) -> dict[str, Any]:
        """Arguments of the decoder for the plan's tokens."""
        return self.images.inputs(plan.tokens_1S) if self.images else {"input_ids": plan.tokens_1S}

    def base_states(self, plan: Plan) -> tuple[Tensor, ...]:
        """Hidden states [S, H] without the adapter: the embeddings, then after each layer."""
        decoder = self.trained.get_base_model().get_decoder()
        with self.trained.disable_adapter():
            outputs = decoder(
                **self._inputs(plan),
                position_ids=plan.positions_1S,
                use_cache=False,
                output_hidden_states=True,
                plan=plan,
            )
        return tuple(states_1SH[0] for states_1SH in outputs.hidden_states)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Context manager of gradient checkpointing (1604.06174): layers keep only their input for
        the backward pass, if the spec asks for it."""
        for layer in self._recomputed:
            layer.training = True  # itself alone: it has no dropout of its own
        try:
            yield
        finally:
            for layer in self._recomputed:
                layer.training = False

    def logits(self, hidden_BH: Tensor) -> Tensor:
        """Logits [B, vocabulary], computed for sampling."""
        head = self._copies[1] if self._copies else self._head
        logits_BV = packed_linear(hidden_BH, head, self._head_bias)
        if self._transform != UNCHANGED:
            logits_BV = logits_BV.float()
            self._transform.apply_(logits_BV)
        return logits_BV

    def selected_logprobs(
        self,
        hidden_MH: Tensor,
        targets_M: Tensor,
        temperature: float,
        entropy_slope: bool = False,
        masks_MW: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probs of the target tokens, and entropies of their distributions, both [M], with
        gradients; the entropies have one only with `entropy_slope`. `masks_MW`: masks of grammars,
        on the model's device."""
        return SelectedLogProb.apply(  # type: ignore[no-any-return]
            hidden_MH,
            self._head,
            self._head_bias,
            targets_M,
            temperature,
            entropy_slope,
            self._transform,
            masks_MW,
        )

    @torch.inference_mode()
    def publish_gap(self) -> float:
        """Mean |Δ log-prob| of fixed tokens between the trainer's forward pass and that of the
        sampler, which uses a KV cache. 0 without prefix sharing, where both compute whole rows."""
        if not self.shares_prefixes:
            return 0.0
        generator = torch.Generator().manual_seed(0)
        vocabulary = self.trained.config.get_text_config().vocab_size
        probe = torch.randint(vocabulary, (PROBE_TOKENS,), generator=generator).tolist()
        half = PROBE_TOKENS // 2
        cache = KeyValueCache(most_slots=1, budget_tokens=PROBE_TOKENS)
        found = cache.acquire(probe, PROBE_TOKENS)
        assert found is not None
        slot, _ = found
        hidden = []
        for piece in (probe[:half], probe[half:-2], probe[-2:-1]):
            plan = ExtensionPlan(cache, [Extension(slot, piece)], self.device, self.images)
            hidden.append(self.sampled_hidden(plan))
            slot.tokens += piece
        targets_T = torch.tensor(probe[half + 1 :], device=self.device)
        sampled_TH = torch.cat(hidden)[half:]
        scored_TH = self.hidden(TreePlan(grow([probe]), self.device, self.images))[half:-1]
        sampled_T, scored_T = (
            self.selected_logprobs(hidden_TH, targets_T, 1.0)[0]
            for hidden_TH in (sampled_TH, scored_TH)
        )
        return (sampled_T - scored_T).abs().mean().item()

    def save_adapter(self, folder: Path, base_name: str) -> None:
        """Save the adapter of the base model `base_name` as a PEFT folder, loadable by peft,
        transformers and vLLM."""
        self.trained.peft_config["default"].base_model_name_or_path = base_name
        self.trained.save_pretrained(
            folder,
            safe_serialization=True,
            save_embedding_layers=False,  # "auto" asks the hub about the base model
        )
        (folder / "README.md").unlink(missing_ok=True)

    def load_adapter(self, folder: Path) -> None:
        """Load a PEFT folder. Raises PolicyError if it belongs to another model."""
        try:
            found = set_peft_model_state_dict(self.trained, load_file(folder / ADAPTER_FILE))
            strangers = found.unexpected_keys
        except RuntimeError as error:
            strangers = [str(error).splitlines()[-1].strip()]
        if strangers:
            raise PolicyError.of(
                "policy.other_adapter",
                f"This adapter does not fit this model: {strangers[0]}.",
                "Use an adapter that was trained on the same base model.",
                where=str(folder),
            )


def _checkpointed_layers(base: PreTrainedModel) -> list[nn.Module]:
    """Layers that support gradient checkpointing. Raises ModelError if the model does not."""
    try:
        base.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise ModelError.of(
            "model.no_recompute",
            f"This model does not support gradient checkpointing: {error}",
            "Set backend.recompute to false, or lower train.batch_tokens.",
            where="backend.recompute",
        ) from error
    decoder = base.get_decoder()
    return [layer for layer in decoder.modules() if isinstance(layer, GradientCheckpointingLayer)]


def _eos_tokens(model: PreTrainedModel) -> list[int]:
    eos = model.generation_config.eos_token_id if model.generation_config else None
    eos = eos if eos is not None else model.config.get_text_config().eos_token_id
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
