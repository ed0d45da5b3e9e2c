"""Requests and answers in the OpenAI form, as far as they mean something here."""

import json
import time
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from engine.protocol.problems import RolloutError

MODEL_NAME = "policy"
SYSTEM_ROLES = ("system", "developer")


class ChatRequest(BaseModel):
    """The fields of a chat completion request that mean something here; others are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str = ""
    """Heeded where one key leads to models of several names."""
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1, le=64)
    stop: str | list[str] | None = None
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    stream: bool = False

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


def with_system(asked: ChatRequest, system: str | None) -> ChatRequest:
    """The request with these words in place of its first system message; where it has none, in
    front of all. None changes nothing."""
    if system is None:
        return asked
    ours = {"role": "system", "content": system}
    roles = [message.get("role") for message in asked.messages]
    place = next((n for n, role in enumerate(roles) if role in SYSTEM_ROLES), None)
    messages = list(asked.messages)
    messages[slice(0, 0) if place is None else slice(place, place + 1)] = [ours]
    return asked.model_copy(update={"messages": messages})


def chunk(
    model: str,
    name: str,
    index: int,
    delta: dict[str, Any],
    finish: str | None = None,
    logprobs: dict[str, Any] | None = None,
) -> str:
    """One server-sent event of a streamed answer."""
    body = {
        "id": name,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        ],
    }
    return f"data: {json.dumps(body)}\n\n"


def error_answer(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": code, "code": code}}, status)


def too_many_turns(most: int) -> RolloutError:
    return RolloutError.of(
        "gateway.too_many_turns",
        f"This attempt has made its {most} model calls.",
        "Raise agent.max_turns, or end the loop earlier.",
    )
