"""Verification at load that the trainer's forward pass equals the model's own.

Trainer and sampler share their forward pass, so comparing them with each other cannot find what
both omit (a bias of the head, capped or scaled logits, attention sinks). Here fixed tokens are
computed by the unmodified transformers model, with eager attention and its own head, and by the
trainer. A model for which the two differ is refused.

S tokens of the probe, H hidden, V vocabulary.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import Protocol

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedConfig

from engine.models.architectures import FAMILIES
from engine.policy.torch.model import attention
from engine.policy.torch.model.attention import Plan
from engine.policy.torch.model.experts import RoutedExperts
from engine.policy.torch.model.images import ImageTokens
from engine.policy.torch.training.prefix_tree import TreePlan, grow
from engine.protocol.problems import ModelError

PROBE_TOKENS = 48
IMAGE_START, CHANNELS = 8, 3
"""Place of the image in the probe of a model that reads images, and its color channels."""
LONGEST_PROBE = 2048
"""Tokens; the probe is longer than any sliding window up to this size."""
ROW_LENGTH_ROPES = ("dynamic", "longrope")
"""Position embeddings of transformers that are computed again for longer rows."""
HIDDEN_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.08}
"""Largest ‖ours − plain‖ / ‖plain‖ of the states that enter the head."""
HEAD_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.01}
"""Largest mean |Δ log-prob| in nats of both heads on the same states."""


class Computed(Protocol):
    """The forward pass of the trainer."""

    trained: PeftModel
    device: torch.device
    dtype: torch.dtype
    images: ImageTokens | None

    def hidden(self, plan: Plan) -> Tensor: ...

    def selected_logprobs(
        self, hidden_MH: Tensor, targets_M: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]: ...


@torch.inference_mode()
def verify_forward(model: Computed, max_context: int) -> None:
    """Compare the trainer's forward pass with the model's own on fixed tokens. `max_context` is the
    run's context length. Raises ModelError if the states before the head or the log-probs differ by
    more than the precision explains, if they cannot be computed at all, or if position embeddings
    change within the context."""
    refuse_changing_positions(model.trained.config.get_text_config(), max_context)
    tokens_S = probe_tokens(model.trained, max_context)
    ids, image = tokens_S.tolist(), dict[str, Tensor]()
    if model.images:
        image = example_image(model.trained, model.images, tokens_S, ids)
    try:
        plain_SH, plain_SV = plain_forward(model.trained, tokens_S.to(model.device), image)
        ours_SH = model.hidden(TreePlan(grow([ids]), model.device, model.images))
        targets_S = tokens_S[1:].to(model.device)
        ours_S = model.selected_logprobs(plain_SH[:-1], targets_S, 1.0)[0]
    except (TypeError, RuntimeError, AssertionError, ValueError, AttributeError) as error:
        raise _refusal(model, f"its forward pass fails: {error}", str(error)) from error
    size = plain_SH.float().norm()
    apart = ((ours_SH.float() - plain_SH.float()).norm() / size).item()
    if not apart <= HIDDEN_TOLERANCE[model.dtype]:
        reason = f"its hidden states differ by {apart:.1%} from those of transformers"
        raise _refusal(model, reason, f"relative difference {apart}")
    plain_S = plain_SV[:-1].float().log_softmax(-1).gather(-1, targets_S[:, None])[:, 0]
    gap = (ours_S - plain_S).abs().mean().item()
    if not gap <= HEAD_TOLERANCE[model.dtype]:
        reason = f"its log-probs differ by {gap:.3g} nats per token from transformers"
        raise _refusal(model, reason, f"head only, mean |difference| {gap}")


def refuse_changing_positions(config: PreTrainedConfig, max_context: int) -> None:
    """Raise ModelError if the position embeddings of a model depend on the length of the row and
    `max_context` exceeds the length from which they change: cached keys of a shorter row would
    differ from those that the trainer computes."""
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [one for one in rope.values() if isinstance(one, dict)]
    for one in nested or [rope]:
        limit = one.get("original_max_position_embeddings") or config.max_position_embeddings
        if one.get("rope_type") in ROW_LENGTH_ROPES and max_context > limit:
            raise ModelError.of(
                "model.changing_positions",
                f"The position embeddings of this model change in rows longer than {limit} tokens "
                f"({one['rope_type']}), so cached keys would be inexact.",
                f"Set model.max_context to {limit} or less.",
                where="model.max_context",
            )


def probe_tokens(trained: PeftModel, max_context: int) -> Tensor:
    """Fixed random token ids [S] for a model: longer than its sliding window if `max_context`, the
    run's context length, can exceed it."""
    config = trained.config.get_text_config()
    window = getattr(config, "sliding_window", None) or 0
    exceeds = window < min(max_context, LONGEST_PROBE)
    count = max(PROBE_TOKENS, window + PROBE_TOKENS // 2) if exceeds else PROBE_TOKENS
    generator = torch.Generator().manual_seed(0)
    return torch.randint(config.vocab_size, (count,), generator=generator)


def example_image(
    trained: PeftModel, images: ImageTokens, tokens_S: Tensor, ids: list[int]
) -> dict[str, Tensor]:
    """Put an image of random pixels among the probe's tokens: its placeholders into `tokens_S`, its
    own token ids into `ids`. Returns the arguments that a transformers model needs for it."""
    vision = trained.config.vision_config
    merge = vision.spatial_merge_size
    grid = (1, 2 * merge, 3 * merge)
    size = CHANNELS * vision.temporal_patch_size * vision.patch_size**2
    generator = torch.Generator().manual_seed(0)
    pixels_PD = torch.randn(math.prod(grid), size, generator=generator)
    seen = images.add("", grid, lambda: pixels_PD)
    place = slice(IMAGE_START, IMAGE_START + seen.count)
    others = [images.placeholder, trained.config.video_token_id]
    tokens_S[torch.isin(tokens_S, torch.tensor(others))] = 0
    ids[:] = tokens_S.tolist()
    tokens_S[place], ids[place] = images.placeholder, range(seen.first, seen.first + seen.count)
    return {
        "pixel_values": pixels_PD,
        "image_grid_thw": torch.tensor([grid]),
        "mm_token_type_ids": (tokens_S == images.placeholder).int()[None],
    }


def plain_forward(
    trained: PeftModel, tokens_S: Tensor, image: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """States [S, H] that enter the head, and logits [S, V], by the unmodified transformers model.
    `image`: further arguments, for an image among the tokens. Raises any exception of the model's
    code."""
    base, seen = trained.get_base_model(), []
    head = base.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    given = {name: tensor.to(tokens_S.device) for name, tensor in (image or {}).items()}
    base.set_attn_implementation(attention.implementation(base.config, "eager"))
    routed = any(isinstance(part, RoutedExperts) for part in trained.modules())
    untouched = trained.disable_adapter() if routed else contextlib.nullcontext()
    try:
        with untouched:  # a new adapter has no effect; experts without it are those of transformers
            logits_1SV = trained(input_ids=tokens_S[None], use_cache=False, **given).logits
    finally:
        base.set_attn_implementation(attention.implementation(base.config, attention.NAME))
        hook.remove()
    if not seen:
        raise ValueError("its logits are not computed by its output embeddings")
    return seen[0][0], logits_1SV[0]


def _refusal(model: Computed, reason: str, detail: str) -> ModelError:
    kind = type(model.trained.get_base_model()).__name__
    return ModelError.of(
        "model.not_exact",
        f"The torch trainer does not reproduce {kind} of transformers: {reason[:300]}.",
        f"Use a model of these families: {FAMILIES}.",
        where="model.name",
        detail=detail[:4000],
    )
