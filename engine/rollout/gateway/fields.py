"""Fields of the three APIs: which are honoured, which have no effect, and which are refused.

Nothing that a client sends is ignored in silence. `tests/engine/rollout/gateway/test_fields.py`
compares these tables with the parameters of the official clients, and with the documentation.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from engine.protocol.problems import RolloutError

Dialect = Literal["chat", "responses", "messages"]


class Refused(NamedTuple):
    """Field that is refused, unless it has a value that changes nothing."""

    why: str
    neutral: tuple[Any, ...] = ()


SAMPLING = "the policy is sampled from the distribution that is trained"
PROVIDER = "it runs at a provider, and the policy runs on your machine"
MEDIA = "the policy writes text, and reads images in messages at most"
KEEPS_ALL: tuple[Any, ...] = (
    {"edits": []},
    {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
)
"""Values of Anthropic's `context_management` that remove nothing."""
HONOURED: dict[Dialect, frozenset[str]] = {
    "chat": frozenset(
        {
            "messages", "model", "max_tokens", "max_completion_tokens", "n", "stop", "seed",
            "temperature", "top_p", "logprobs", "top_logprobs", "tools", "tool_choice",
            "parallel_tool_calls", "response_format", "stream", "stream_options",
            "reasoning_effort", "chat_template_kwargs", "structured_outputs",
            "return_tokens_as_token_ids",
        }
    ),
    "responses": frozenset(
        {
            "input", "instructions", "model", "max_output_tokens", "previous_response_id",
            "temperature", "top_p", "top_logprobs", "include", "tools",
            "tool_choice", "parallel_tool_calls", "text", "reasoning", "stream",
            "chat_template_kwargs", "structured_outputs",
        }
    ),
    "messages": frozenset(
        {
            "messages", "model", "max_tokens", "system", "stop_sequences", "stream", "temperature",
            "top_p", "thinking", "tool_choice", "tools", "output_config", "output_format",
            "chat_template_kwargs",
        }
    ),
}  # fmt: skip
"""Fields with an effect. In training, temperature and top_p are the run's."""
STORED = ("metadata", "service_tier", "prompt_cache_key", "prompt_cache_options",
          "prompt_cache_retention", "safety_identifier", "store", "user")  # fmt: skip
NO_EFFECT: dict[Dialect, frozenset[str]] = {
    "chat": frozenset(STORED),
    "responses": frozenset({*STORED, "stream_options", "access_programs"}),
    "messages": frozenset(
        {"metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics",
         "user_profile_id", "workspace_id", "betas", "billing_policy", "fallbacks",
         "fallback_credit_token"}
    ),
}  # fmt: skip
"""Fields that concern a provider's storage, prices, caches, abuse checks or other models."""
REFUSED: dict[Dialect, dict[str, Refused]] = {
    "chat": {
        "frequency_penalty": Refused(SAMPLING, (0,)),
        "presence_penalty": Refused(SAMPLING, (0,)),
        "logit_bias": Refused(SAMPLING, ({},)),
        "top_k": Refused(SAMPLING, (0, -1)),
        "min_p": Refused(SAMPLING, (0,)),
        "repetition_penalty": Refused(SAMPLING, (1,)),
        "functions": Refused("OpenAI has replaced it; send the functions as tools", ([],)),
        "function_call": Refused("OpenAI has replaced it; send tool_choice", ("none", "auto")),
        "audio": Refused(MEDIA),
        "modalities": Refused(MEDIA, (["text"],)),
        "prediction": Refused("the policy has no predicted outputs"),
        "moderation": Refused(PROVIDER),
        "verbosity": Refused("no chat template reads it; say it in a message", ("medium",)),
        "web_search_options": Refused(PROVIDER),
    },
    "responses": {
        "background": Refused("a response is complete when the request ends", (False,)),
        "context_management": Refused(PROVIDER, ([],)),
        "conversation": Refused("nothing is stored; send previous_response_id or the whole input"),
        "image": Refused(MEDIA),
        "max_tool_calls": Refused("it limits tools that run at a provider"),
        "moderation": Refused(PROVIDER),
        "prompt": Refused("it names a prompt that is stored at OpenAI; send the prompt itself"),
        "truncation": Refused("no message is left out; shorten the input", ("disabled",)),
    },
    "messages": {
        "compaction": Refused(PROVIDER),
        "container": Refused(PROVIDER),
        "thread": Refused("nothing is stored; send the whole conversation"),
        "context_management": Refused(PROVIDER, KEEPS_ALL),
        "mcp_servers": Refused(PROVIDER, ([],)),
        "top_k": Refused(SAMPLING, (0,)),
    },
}


def check_fields(dialect: Dialect, body: Mapping[str, Any]) -> None:
    """Raise RolloutError, which names the first field of a request that is refused or unknown."""
    known = HONOURED[dialect] | NO_EFFECT[dialect]
    for name, value in body.items():
        refused = REFUSED[dialect].get(name)
        if refused is not None and value is not None and value not in refused.neutral:
            raise RolloutError.of(
                "gateway.refused_field",
                f"{name}: {refused.why}.",
                "Leave the field out.",
                where=name,
            )
        if refused is None and name not in known:
            raise RolloutError.of(
                "gateway.unknown_field",
                f"{name}: this endpoint does not know the field.",
                "Leave it out, or check its spelling.",
                where=name,
            )
