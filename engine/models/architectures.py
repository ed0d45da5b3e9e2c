"""Architectures that can be trained: causal language models of the installed transformers.

The names are read from its source, without importing it.
"""

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from engine.models.file_checks import LOGIT_CHANGES, text_config
from engine.protocol.problems import Problem

MAPPING = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"


def architecture_problem(config: dict[str, Any], name: str) -> Problem | None:
    """Return why the engine cannot train a model with this config, or None. Whether its attention
    code supports shared prefixes is only known when it is loaded."""
    kind = config.get("model_type")
    known = causal_types()
    if known and (not isinstance(kind, str) or kind not in known):
        return Problem(
            code="model.not_causal",
            message=f"{name} is not a causal language model that transformers supports "
            f"(model_type {str(kind)[:60]}).",
            hint="Use a model of the Llama, Qwen, SmolLM, Mistral, Phi or Gemma 3 family.",
        )
    text = text_config(config)
    for key in LOGIT_CHANGES:
        if text.get(key) not in (None, 1, 1.0):
            return Problem(
                code="model.unusual_head",
                message=f"{name} transforms its logits after the output layer ({key}), "
                "which the torch trainer does not support.",
                hint="Use a model of the Llama, Qwen, SmolLM, Mistral or Gemma 3 family.",
            )
    return None


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
