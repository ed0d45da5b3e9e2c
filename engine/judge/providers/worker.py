"""The judge process: `PYTHON -m engine.judge.providers.worker LINE LIFE`, in the judge's own
environment.

It alone imports litellm and holds API keys, in memory. One JSON message a line
(engine/runtime/child.py):
`keys` gives it keys by provider, `price` asks what a model costs, `ask` is one try of one question
(trying again is the ledger's, who pays for it), `chat` one try of one request of an agent that is
forwarded, tools and all. No callbacks, no telemetry, no price list from the
network, no caching: what was asked and answered is the engine's to keep.
"""

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import Coroutine
from typing import Any

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}

import httpx
import litellm

from engine.runtime.life_pipe import exit_with_engine, hide_from_peers

LONGEST_WAIT_S = 60.0
FIRST_WAIT_S = 1.0
LINE_LIMIT = 256 * 2**20

AGAIN = (
    litellm.RateLimitError,
    litellm.InternalServerError,
    litellm.ServiceUnavailableError,
    litellm.APIConnectionError,
    litellm.Timeout,
)
UNBILLED = (
    litellm.RateLimitError,
    litellm.AuthenticationError,
    litellm.PermissionDeniedError,
    litellm.NotFoundError,
    litellm.BadRequestError,
)
"""Refusals before any work is done."""
Kinds = type[Exception] | tuple[type[Exception], ...]
WORDS: tuple[tuple[Kinds, str, str, str], ...] = (
    (
        litellm.ContextWindowExceededError,
        "context",
        "The request does not fit in the context of the {model}.",
        "{shorten}, or use a {model} with a longer context.",
    ),
    (
        litellm.AuthenticationError,
        "key",
        "The provider rejected the key.",
        "Set a valid key under Settings, or in the provider's environment variable.",
    ),
    (
        litellm.NotFoundError,
        "no_model",
        "The provider does not know this model.",
        "Check the name of the {model}.",
    ),
    (
        litellm.RateLimitError,
        "rate_limit",
        "The provider kept refusing: too many requests.",
        "Lower {section}.concurrency, or try again later.",
    ),
    (
        litellm.Timeout,
        "timeout",
        "The {model} did not answer in time.",
        "Raise {section}.timeout_s, or use a faster {model}.",
    ),
    (
        litellm.BadRequestError,
        "refused",
        "The provider rejected the request.",
        "See the detail; some models do not support every setting.",
    ),
    (
        (litellm.InternalServerError, litellm.ServiceUnavailableError),
        "server",
        "The provider kept returning errors.",
        "Try again later, or use another provider.",
    ),
    (
        litellm.APIConnectionError,
        "unreachable",
        "The provider cannot be reached.",
        "Check the network, or that the local server is running.",
    ),
)
"""Kind of an error, end of its code, message and hint."""
CALLERS = {
    "ask": {
        "prefix": "judge",
        "section": "judge",
        "model": "judge",
        "shorten": "Lower judge.max_chars",
    },
    "chat": {"prefix": "provider", "section": "evaluate", "model": "model", "shorten": "Send less"},
}
"""Beginning of a problem's code, and words of its text, by operation."""


class Worker:
    """Answers requests, many at once."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._keys: dict[str, str] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if message["op"] == "cancel":
            if task := self._tasks.get(number):
                task.cancel()
            return
        task = asyncio.create_task(self._answer(number, message))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number))

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        answer = await getattr(self, f"_op_{message['op']}")(message)
        self._writer.write(json.dumps({"id": number, "ok": answer}).encode() + b"\n")

    async def _op_keys(self, message: dict[str, Any]) -> dict[str, Any]:
        self._keys = message["keys"]
        return {}

    async def _op_price(self, message: dict[str, Any]) -> dict[str, Any]:
        """Dollars per token; empty where litellm does not know."""
        known = litellm.model_cost
        model = message["model"]
        info = known.get(model) or known.get(model.split("/", 1)[-1]) or {}
        prompt, completion = info.get("input_cost_per_token"), info.get("output_cost_per_token")
        return {} if None in (prompt, completion) else {"prompt": prompt, "completion": completion}

    async def _op_count(self, message: dict[str, Any]) -> dict[str, Any]:
        """Tokens of each question, by the model's tokenizer as far as litellm has it."""
        model = message["model"]
        counts = [litellm.token_counter(model, messages=one) for one in message["questions"]]
        return {"tokens": counts}

    async def _op_ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask once. Returns the answer, or a `problem` and, where a retry may help, `wait_s`.
        `metered` is false where the call may have been billed without a known cost."""
        return await self._tried(message, self._complete(message))

    async def _op_chat(self, message: dict[str, Any]) -> dict[str, Any]:
        """The same with the whole `request` of an agent, and the whole `message` in answer."""
        return await self._tried(message, self._chat(message))

    async def _tried(
        self, message: dict[str, Any], work: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        try:
            return await asyncio.wait_for(work, message["timeout_s"])
        # the boundary: whatever a provider's code raises becomes a problem of this question
        except Exception as error:  # noqa: BLE001
            passing = isinstance(error, (TimeoutError, *AGAIN))
            return {
                "problem": problem_of(error, self._keys, message["op"]),
                "metered": isinstance(error, UNBILLED),
                "wait_s": waiting_time(error, message["attempt"]) if passing else None,
            }

    async def _complete(self, message: dict[str, Any]) -> dict[str, Any]:
        reply = await self._call(
            message,
            messages=message["messages"],
            max_tokens=message["max_tokens"],
            temperature=message["temperature"],
        )
        choice = reply.choices[0] if reply.choices else None
        said = (choice.message.content or "") if choice else ""
        return {
            "reply": said,
            "finish": (choice.finish_reason or "") if choice else "",
            **meter(reply),
        }

    async def _chat(self, message: dict[str, Any]) -> dict[str, Any]:
        # its tools are the agent's own: litellm would load what looks for MCP servers
        reply = await self._call(message, **message["request"], _skip_mcp_handler=True)
        choice = reply.choices[0] if reply.choices else None
        said = choice.message if choice else None
        calls = (said.tool_calls if said else None) or []
        answer = {"role": "assistant", "content": (said.content or "") if said else ""}
        if calls:
            answer["tool_calls"] = [call.model_dump(exclude_none=True) for call in calls]
        finish = (choice.finish_reason or "stop") if choice else "stop"
        return {"message": answer, "finish": finish, **meter(reply)}

    def _key(self, message: dict[str, Any]) -> str | None:
        """The provider's key, where the engine says that it may go to this address. Never None
        with an address: litellm would look for a key of its own."""
        key = self._keys.get(message["provider"]) if message["with_key"] else None
        return key or ("none" if message["base_url"] else None)

    async def _call(self, message: dict[str, Any], **request: Any) -> Any:
        return await litellm.acompletion(
            model=message["model"],
            **request,
            base_url=message["base_url"],
            api_key=self._key(message),
            timeout=message["timeout_s"],
            num_retries=0,
            max_retries=0,
            drop_params=True,
            caching=False,
            extra_headers={"Idempotency-Key": message["key"]},
        )


def meter(reply: Any) -> dict[str, Any]:
    """Tokens that an answer has used; `metered` where the provider has counted them credibly."""
    usage = getattr(reply, "usage", None)
    prompt, completion = (_count(usage, f"{name}_tokens") for name in ("prompt", "completion"))
    if not prompt or completion is None:  # litellm makes up zeros
        return {"metered": False, "prompt_tokens": 0, "completion_tokens": 0}
    return {"metered": True, "prompt_tokens": prompt, "completion_tokens": completion}


def _count(usage: Any, name: str) -> int | None:
    """None for what is not a number of tokens."""
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else None


def problem_of(error: Exception, keys: dict[str, str], op: str) -> dict[str, str]:
    """An error as a problem in the words of the operation, without any key in it."""
    detail, caller = str(error)[:2000], CALLERS[op]
    for key in filter(None, keys.values()):
        detail = detail.replace(key, "…")
    kind: type[Exception] = type(error)
    if isinstance(error, TimeoutError):
        kind = litellm.Timeout
    elif "connection error" in str(error).lower():  # litellm calls a lost one a server's error
        kind = litellm.APIConnectionError
    code, words, hint = next(
        (told for known, *told in WORDS if issubclass(kind, known)),
        ("failed", f"The call of the {{model}} failed: {type(error).__name__}.", ""),
    )
    return {
        "code": f"{caller['prefix']}.{code}",
        "message": words.format_map(caller),
        "hint": hint.format_map(caller),
        "detail": detail,
    }


def waiting_time(error: BaseException, attempt: int) -> float:
    """Seconds before a retry: the provider's Retry-After, else exponential back-off with jitter."""
    response = getattr(error, "response", None)
    asked = getattr(response, "headers", {}).get("retry-after") if response is not None else None
    try:
        return min(float(asked), LONGEST_WAIT_S) if asked else _backoff(attempt)
    except ValueError:
        return _backoff(attempt)


def _backoff(attempt: int) -> float:
    return min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S) * random.uniform(0.5, 1.0)


def refuse_redirects() -> None:
    """Make every httpx client of this process return a redirect as the answer, whatever its own
    setting: followed, it would take a request with keys in its headers to another address."""
    httpx.Response.has_redirect_location = property(lambda response: False)  # type: ignore[assignment, method-assign]


async def serve(line: int) -> None:
    refuse_redirects()
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    reader, writer = await asyncio.open_connection(
        sock=socket.socket(fileno=line), limit=LINE_LIMIT
    )
    worker = Worker(writer)
    while text := await reader.readline():
        worker.take(json.loads(text))
    os._exit(0)


def main() -> None:
    line, life = int(sys.argv[1]), int(sys.argv[2])
    hide_from_peers()
    exit_with_engine(life)
    asyncio.run(serve(line))


if __name__ == "__main__":
    main()
