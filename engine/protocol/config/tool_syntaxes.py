"""Names of the formats in which model families write tool calls."""

from typing import Literal

ToolSyntax = Literal[
    "auto", "hermes", "mistral", "gpt-oss", "qwen3", "qwen3.5", "glm-4.5", "glm-5", "llama-3",
    "deepseek-v3", "deepseek-r1", "deepseek-v4", "kimi-k2", "kimi-k2.5", "minimax-m2",
    "nemotron-3", "gemma4", "laguna-xs.2", "hy3", "inkling",
]  # fmt: skip
"""`auto` finds the format out from the chat template; the others are those of the engine's parsers
(`rollout/rendering/syntaxes.py`)."""
TITLES = {
    "hermes": "Hermes",
    "mistral": "Mistral",
    "gpt-oss": "gpt-oss",
    "qwen3": "Qwen3",
    "qwen3.5": "Qwen3.5",
    "glm-4.5": "GLM-4.5",
    "glm-5": "GLM-5",
    "llama-3": "Llama 3",
    "deepseek-v3": "DeepSeek V3",
    "deepseek-r1": "DeepSeek R1",
    "deepseek-v4": "DeepSeek V4",
    "kimi-k2": "Kimi K2",
    "kimi-k2.5": "Kimi K2.5",
    "minimax-m2": "MiniMax M2",
    "nemotron-3": "Nemotron 3",
    "gemma4": "Gemma 4",
    "laguna-xs.2": "Laguna XS.2",
    "hy3": "Hy3",
    "inkling": "Inkling",
}
"""Titles of the formats by name."""
