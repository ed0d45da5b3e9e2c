"""Policy completions in the format of OpenAI's chat completions. Pure functions."""

import time
import uuid
from typing import Any

from engine.policy.base import SampledToken
from engine.protocol.requests.scripts import CHOICE_ID
from engine.rollout.conversation import Prompt
from engine.rollout.gateway.requests import ChatRequest
from engine.rollout.gateway.sessions import Choice


def completion_body(
    model: str, request: ChatRequest, prompt: Prompt, choices: list[Choice]
) -> dict[str, Any]:
    completion = sum(len(choice.sampled) for choice in choices)
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(request, choice) for choice in choices],
        "usage": {
            "prompt_tokens": len(prompt.tokens),
            "completion_tokens": completion,
            "total_tokens": len(prompt.tokens) + completion,
        },
    }


def _choice(request: ChatRequest, choice: Choice) -> dict[str, Any]:
    answer = {
        "index": choice.index,
        "message": choice.message,
        "finish_reason": choice.finish,
        "logprobs": None,
    }
    if request.logprobs:
        answer["logprobs"] = logprobs_of(choice)
    return {**answer, CHOICE_ID: choice.id} if choice.id else answer


def logprobs_of(choice: Choice) -> dict[str, Any]:
    return {"content": [_logprob(token) for token in choice.sampled]}


def _logprob(token: SampledToken) -> dict[str, Any]:
    return {
        "token": f"token_id:{token.token}",
        "logprob": token.logprob,
        "bytes": None,
        "top_logprobs": [
            {"token": f"token_id:{other}", "logprob": value, "bytes": None}
            for other, value in token.top
        ],
    }
