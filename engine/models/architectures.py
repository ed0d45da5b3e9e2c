"""Architectures that can be trained: causal language models of the installed transformers, and
models that read images.

The names are read from its source, without importing it.
"""

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from engine.models.file_checks import text_config
from engine.protocol.problems import Problem

MAPPING = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
FAMILIES = "Llama, Qwen, SmolLM, Mistral, Gemma, Phi, Granite, DeepSeek, GLM or gpt-oss"
"""Families of models that are trained exactly, for messages."""
UNSUPPORTED = {
    "has recurrent layers only": ("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"),
    "has its own attention code in transformers": (
        *("bloom", "codegen", "cpmant", "ctrl", "falcon", "fuyu", "gpt_neo", "gpt_neox_japanese"),
        *("gptj", "mpt", "openai-gpt", "reformer", "xglm", "xlm", "xlnet"),
    ),
    "is an encoder or the decoder of one": (
        *("bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "blenderbot"),
        *("blenderbot-small", "camembert", "data2vec-text", "electra", "ernie", "marian", "mbart"),
        *("megatron-bert", "mvp", "musicgen", "musicgen_melody", "pegasus", "plbart"),
        *("prophetnet", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
        *("trocr", "whisper", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    ),
    "selects the keys of each query (sparse attention)": (
        *("deepseek_v32", "deepseek_v4", "glm_moe_dsa"),
    ),
    "attends in chunks of positions": ("llama4", "llama4_text"),
    "masks keys by their values": ("doge",),
    "predicts bytes from patches": ("blt",),
    "scales its hidden states before the output layer": ("minicpm3",),
}
"""Model types that the trainer does not reproduce, by the reason, a predicate."""
SEEING = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
"""Model types whose images are trained exactly, if their config has a `vision_config`."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Keys of a config that give the number of routed experts."""
UNSTACKED = ("aria_text", "dbrx", "jetmoe", "llama4_text", "longcat_flash")
"""Model types of mixtures whose experts have no stacked weights that PEFT adapts."""


def architecture_problem(config: dict[str, Any], name: str) -> Problem | None:
    """Return why the engine cannot train a model with this config, or None. Whether its layers
    support shared prefixes is only known when it is loaded."""
    kind = config.get("model_type")
    known = causal_types()
    trained = isinstance(kind, str) and (kind in known or reads_images(config))
    if known and not trained:
        return Problem(
            code="model.not_causal",
            message=f"{name} is not a causal language model that transformers supports "
            f"(model_type {str(kind)[:60]}).",
            hint=f"Use a model of these families: {FAMILIES}.",
        )
    kinds = {str(kind), str(text_config(config).get("model_type"))}
    for reason, unsupported in UNSUPPORTED.items():
        if kinds & set(unsupported):
            return Problem(
                code="model.unusual_architecture",
                message=f"{name} {reason}, which the torch trainer does not support.",
                hint=f"Use a model of these families: {FAMILIES}.",
            )
    return None


def reads_images(config: dict[str, Any]) -> bool:
    """Whether the engine gives images to a model with this config."""
    kind = config.get("model_type")
    return (
        isinstance(kind, str) and kind in SEEING and isinstance(config.get("vision_config"), dict)
    )


def has_experts(config: dict[str, Any]) -> bool:
    """Whether a model with this config is a mixture of experts; the adapter then covers its
    attention layers and, with `model.adapt_experts`, its routed experts."""
    counts = (text_config(config).get(key) for key in EXPERTS)
    return any(isinstance(count, int) and count > 1 for count in counts)


def experts_problem(config: dict[str, Any], name: str) -> Problem | None:
    """Return why an adapter cannot cover the experts of a model with this config, or None."""
    kinds = {str(config.get("model_type")), str(text_config(config).get("model_type"))}
    if not has_experts(config):
        why = "is not a mixture of experts"
    elif kinds & set(UNSTACKED):
        why = "is a mixture of experts whose weights are not stacked"
    else:
        return None
    return Problem(
        code="model.no_stacked_experts",
        message=f"model.adapt_experts is on, but {name} {why}.",
        hint="Set model.adapt_experts to false.",
        where="model.adapt_experts",
    )


@cache
def causal_types() -> frozenset[str]:
    """Model types of the installed transformers' causal language models; empty without it."""
    found = importlib.util.find_spec("transformers")
    if found is None or found.origin is None:
        return frozenset()
    source = Path(found.origin).parent / "models" / "auto" / "modeling_auto.py"
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == MAPPING for target in node.targets
        ):
            assert isinstance(node.value, ast.Call)
            return frozenset(key for key, _ in ast.literal_eval(node.value.args[0]))
    return frozenset()
