"""Answers in the form of OpenAI's chat completions, whole or as a stream of chunks."""

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from engine.policy.base import SampledToken
from engine.protocol.requests.scripts import CHOICE_ID
from engine.rollout.gateway.requests import ChatRequest
from engine.rollout.gateway.sampling import ModelCall, together
from engine.rollout.gateway.sessions import Choice
from engine.rollout.rendering.chat import ChatFormat

DONE = "data: [DONE]\n\n"
MOST_HELD = 256
"""Tokens without text whose log-probs are sent together, such as those of a tool call."""


class Tokens:
    """Log-probs of tokens in OpenAI's form."""

    def __init__(self, chat: ChatFormat | None, as_ids: bool) -> None:
        """`as_ids`: name tokens by their ids, as vLLM does if it is asked to."""
        self._chat, self._as_ids = chat, as_ids

    def logprobs(self, sampled: list[SampledToken]) -> dict[str, Any]:
        return {"content": [self._logprob(token) for token in sampled], "refusal": None}

    def _logprob(self, token: SampledToken) -> dict[str, Any]:
        top = [{**self._named(other), "logprob": value} for other, value in token.top]
        return {**self._named(token.token), "logprob": token.logprob, "top_logprobs": top}

    def _named(self, token: int) -> dict[str, Any]:
        data = self._chat.token_bytes(token) if self._chat else b""
        name = f"token_id:{token}" if self._as_ids else data.decode("utf-8", "replace")
        return {"token": name, "bytes": list(data)}


def usage_of(choices: list[Choice]) -> dict[str, Any]:
    """Token counts of a model call."""
    prompt = sum(choice.prompt_tokens for choice in choices)
    completion = sum(choice.completion_tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": sum(choice.reasoning_tokens for choice in choices),
            "audio_tokens": 0,
        },
    }


def completion_body(
    request: ChatRequest, call: ModelCall, choices: list[Choice], tokens: Tokens
) -> dict[str, Any]:
    """Whole answer to a chat completion request."""
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.name,
        "choices": [_choice(request, choice, tokens) for choice in choices],
        "usage": usage_of(choices),
    }


def _choice(request: ChatRequest, choice: Choice, tokens: Tokens) -> dict[str, Any]:
    answer = {
        "index": choice.index,
        "message": {"refusal": None, **choice.message},
        "finish_reason": choice.finish,
        "logprobs": tokens.logprobs(choice.sampled) if request.logprobs else None,
    }
    return {**answer, CHOICE_ID: choice.id} if choice.id else answer


async def completion_chunks(
    request: ChatRequest, call: ModelCall, tokens: Tokens
) -> AsyncIterator[str]:
    """Yield the answer to a streamed request as server-sent events, without the last one. Tool
    calls are sent complete at the end of their choice, since partial calls are useless."""
    base = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": call.name,
    }
    counted = bool(request.stream_options and request.stream_options.include_usage)
    unused = {"usage": None} if counted else {}
    choices: list[Choice] = []

    def chunk(
        index: int, delta: dict[str, Any], sampled: list[SampledToken], finish: str | None = None
    ) -> str:
        logprobs = tokens.logprobs(sampled) if request.logprobs and sampled else None
        parts = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return _event({**base, "choices": [parts], **unused})

    held: list[list[SampledToken]] = [[] for _ in range(request.n)]
    for index in range(request.n):
        yield chunk(index, {"role": "assistant", "content": ""}, [])
    async for index, arriving in together(call, request.n):
        held[index] += arriving.sampled
        delta: dict[str, Any] = {}
        if arriving.delta.reasoning:
            delta["reasoning_content"] = arriving.delta.reasoning
        if arriving.delta.content:
            delta["content"] = arriving.delta.content
        if choice := arriving.choice:
            choices.append(choice)
            if calls := choice.message.get("tool_calls"):
                delta["tool_calls"] = [{"index": n, **c} for n, c in enumerate(calls)]
            yield chunk(index, delta, held[index], choice.finish)
        elif delta or (request.logprobs and len(held[index]) >= MOST_HELD):
            yield chunk(index, delta, held[index])
            held[index] = []
    if counted:
        yield _event({**base, "choices": [], "usage": usage_of(choices)})


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"
