"""Run in Unsloth's environment on models patched the way Unsloth patches them on a GPU.
Prints JSON."""

import json
import sys
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama import modeling_llama

import engine.policy.unsloth as ours
from engine.protocol.problems import ModelError

CPU = torch.device("cpu")
OWN_ATTENTION = modeling_llama.LlamaAttention.forward
OWN_ROTARY = modeling_llama.LlamaRotaryEmbedding


def segment_blind_attention(
    self: Any, hidden_states: Any, position_embeddings: Any = None, **_: Any
) -> Any:
    """Causal attention over the whole row that ignores segments."""
    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    q, k, v = (
        part(hidden_states).view(shape).transpose(1, 2)
        for part in (self.q_proj, self.k_proj, self.v_proj)
    )
    cos, sin = position_embeddings
    q, k = modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    attended = scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.o_proj(attended.transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)), None


class ForeignRotary(nn.Module):
    """Rotary embedding with a signature other than transformers'."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def forward(self, x: Any, seq_len: int) -> Any:
        raise AssertionError("never reached")


ForeignRotary.__name__ = "LlamaRotaryEmbedding"


def patch(module: Any) -> None:
    module.LlamaAttention.forward = segment_blind_attention
    module.LlamaRotaryEmbedding = ForeignRotary


def verdict(model: Any) -> str:
    try:
        ours.prove_segments(model, CPU)
    except ModelError as error:
        return error.problem.code
    return "seen"


def main(folder: str) -> None:
    config = AutoConfig.from_pretrained(folder)
    module = ours.modelling(config)

    def build() -> Any:
        base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return get_peft_model(base, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))

    with ours.forwards_kept(module):
        module.LlamaAttention.forward = segment_blind_attention
        patched = build().eval()
        result = {"patched": verdict(patched)}
    with ours.forwards_kept(module):
        patch(module)
        repaired = build().eval()
    ours.own_attention(repaired.get_base_model())
    result["restored"] = verdict(repaired)
    result["attention"] = module.LlamaAttention.forward is OWN_ATTENTION
    result["rotary"] = module.LlamaRotaryEmbedding is OWN_ROTARY
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
