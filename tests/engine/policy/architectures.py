"""Tiny configurations by model type: two layers, or the fewest that show all kinds of layers."""

from typing import Any

SHAPE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 12
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
TWICE = {"num_hidden_layers": 4, "layer_types": 2 * MIXED["layer_types"]}  # type: ignore[operator]
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
GROUPS = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
SHARED = {"shared_expert_intermediate_size": 32}
LATENT = {
    **(EXPERTS | GROUPS),
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_shared_experts": 1,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
}
PER_LAYER = {**TWICE, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 256}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16}
CAPPED = {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 4.0}
GRANITE_EXPERTS = {"logits_scaling": 4.0, "num_local_experts": 4, "num_experts_per_tok": 2}

TREES: dict[str, dict[str, Any]] = {
    "afmoe": EXPERTS | MIXED,
    "apertus": {},
    "arcee": {},
    "aria_text": EXPERTS | {"moe_num_experts": 4},
    "biogpt": {},
    "cohere": {"logit_scale": 0.25},
    "cohere2": MIXED | {"logit_scale": 0.25},
    "cohere2_moe": EXPERTS | MIXED,
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "dots1": EXPERTS | GROUPS | MIXED | {"n_shared_experts": 1},
    "ernie4_5": {},
    "ernie4_5_moe": EXPERTS | {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone4": MIXED,
    "exaone_moe": EXPERTS | MIXED,
    "flex_olmo": EXPERTS,
    "gemma": {},
    "gemma2": MIXED | CAPPED | {"query_pre_attn_scalar": 16},
    "gemma3_text": MIXED,
    "gemma3n_text": {
        **(MIXED | PER_LAYER),
        "intermediate_size": [96] * 4,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
        "altup_num_inputs": 2,
        "num_kv_shared_layers": 2,
    },
    "gemma4_text": MIXED
    | PER_LAYER
    | {"global_head_dim": 32, "num_kv_shared_layers": 2, "final_logit_softcapping": 5.0},
    "glm": {},
    "glm4": {},
    "glm4_moe": EXPERTS | GROUPS,
    "glm4_moe_lite": LATENT,
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neox": {},
    "gpt_oss": EXPERTS | MIXED,
    "granite": {
        "logits_scaling": 4.0,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.1,
    },
    "granitemoe": GRANITE_EXPERTS,
    "granitemoeshared": GRANITE_EXPERTS | {"shared_intermediate_size": 64},
    "helium": {},
    "hunyuan_v1_dense": {},
    "hunyuan_v1_moe": EXPERTS | {"moe_topk": 2},
    "hyperclovax": {"logits_scaling": 0.3},
    "llama": {},
    "mimo_v2_flash": EXPERTS | GROUPS | MIXED,
    "minimax_m2": EXPERTS,
    "ministral": MIXED,
    "ministral3": {},
    "mistral": {"sliding_window": WINDOW},
    "mixtral": EXPERTS,
    "nanochat": {},
    "olmo2": {},
    "olmo3": MIXED,
    "olmoe": EXPERTS,
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "phi": {},
    "phi3": {},
    "phimoe": EXPERTS,
    "qwen2": {},
    "qwen2_moe": EXPERTS | SHARED,
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "seed_oss": {},
    "smollm3": {},
    "starcoder2": {},
    "vaultgemma": MIXED | CAPPED,
}
"""Model types whose trajectories share prefixes."""
ROWS: dict[str, dict[str, Any]] = {
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "diffllama": {},
    "falcon_h1": MAMBA
    | {"mamba_d_ssm": 128, "mamba_n_groups": 1, "lm_head_multiplier": 0.5, "key_multiplier": 0.5},
    "granitemoehybrid": {
        **(GRANITE_EXPERTS | MAMBA),
        "layer_types": ["mamba", "attention"],
        "shared_intermediate_size": 64,
    },
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 2,
        "expert_layer_period": 2,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "kimi_linear": {
        **LATENT,
        "q_lora_rank": None,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_attn_config": {
            "num_heads": 4,
            "head_dim": 16,
            "short_conv_kernel_size": 4,
            "kda_layers": [1],
            "full_attn_layers": [2],
        },
        "mla_use_nope": True,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": EXPERTS | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "minimax": EXPERTS | {"layer_types": ["linear_attention", "full_attention"], "block_size": 8},
    "nemotron": {},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 16,
        "chunk_size": 16,
    },
    "olmo_hybrid": {},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": EXPERTS | SHARED | DELTA,
    "qwen3_next": EXPERTS | SHARED | DELTA,
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "block_types": ["recurrent", "recurrent", "attention"],
        "attention_window_size": WINDOW,
        "lru_width": 64,
    },
    "stablelm": {},
}
"""Model types whose trajectories are computed one by one: layers with a state, or code that does
not support trees."""
