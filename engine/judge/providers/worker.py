"""Judge process: `PYTHON -m engine.judge.providers.worker LINE LIFE`, in its own environment.
The arguments are file descriptors: the socket for requests, a pipe that closes with the engine.

Only this process imports litellm and holds API keys, in memory. Requests are one JSON message per
line (engine/runtime/child.py): `keys` sets keys by provider, `price` and `count` look up prices and
token counts, `ask` makes one judge call (retries are up to the ledger, which has the budget), and
`chat` forwards one request of an agent with its tools. No callbacks, telemetry, price list from the
network, or caching: the engine stores all requests and responses.
"""

import asyncio
import gc
import json
import os
import random
import socket
import sys
from collections.abc import Coroutine
from typing import Any

from engine.runtime.life_pipe import exit_with_engine, hide_from_peers

VARIABLES = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
"""Settings of litellm, which reads them while it is imported and later."""
os.environ |= VARIABLES
gc.disable()  # collections take 40 % of the time that it takes to import litellm

import httpx  # noqa: E402
import litellm  # noqa: E402

gc.freeze()
gc.enable()

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
"""Errors after which a provider bills nothing."""
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
        "The provider kept rejecting requests because of its rate limit.",
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
        "See the details; some models do not support every setting.",
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
        "Check the network; for a local server, check that it is running.",
    ),
)
"""Exception type, end of the problem code, message and hint."""
CALLERS = {
    "ask": {
        "prefix": "judge",
        "section": "judge",
        "model": "judge",
        "shorten": "Lower judge.max_chars",
    },
    "chat": {"prefix": "provider", "section": "evaluate", "model": "model", "shorten": "Send less"},
}
"""Prefix of the problem code, and words for messages, by operation."""


class Worker:
    """Concurrent handler of requests."""

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
        """Price in USD per token; empty if litellm does not know it."""
        known = litellm.model_cost
        model = message["model"]
        info = known.get(model) or known.get(model.split("/", 1)[-1]) or {}
        prompt, completion = info.get("input_cost_per_token"), info.get("output_cost_per_token")
        return {} if None in (prompt, completion) else {"prompt": prompt, "completion": completion}

    async def _op_count(self, message: dict[str, Any]) -> dict[str, Any]:
        """Token count of each prompt, with the model's tokenizer if litellm has it."""
        model = message["model"]
        counts = [litellm.token_counter(model, messages=one) for one in message["questions"]]
        return {"tokens": counts}

    async def _op_ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make one judge call. Returns the answer, or a `problem` and, if a retry may help,
        `wait_s`. `metered` is false if the call may have been billed at an unknown cost."""
        return await self._tried(message, self._complete(message))

    async def _op_chat(self, message: dict[str, Any]) -> dict[str, Any]:
        """Like `_op_ask`, for the `request` of an agent; returns the complete `message`."""
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
        text = (choice.message.content or "") if choice else ""
        return {
            "reply": text,
            "finish": (choice.finish_reason or "") if choice else "",
            **meter(reply),
        }

    async def _chat(self, message: dict[str, Any]) -> dict[str, Any]:
        # its tools are the agent's own: litellm would load what looks for MCP servers
        reply = await self._call(message, **message["request"], _skip_mcp_handler=True)
        choice = reply.choices[0] if reply.choices else None
        assistant = choice.message if choice else None
        calls = (assistant.tool_calls if assistant else None) or []
        answer = {"role": "assistant", "content": (assistant.content or "") if assistant else ""}
        if calls:
            answer["tool_calls"] = [call.model_dump(exclude_none=True) for call in calls]
        finish = (choice.finish_reason or "stop") if choice else "stop"
        return {"message": answer, "finish": finish, **meter(reply)}

    def _key(self, message: dict[str, Any]) -> str | None:
        """Return the provider's key if the engine allows it for this address. Never None with an
        address, since litellm would then search for a key itself."""
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
    """Reply's numbers of tokens; `metered`: whether the provider reported plausible ones."""
    usage = getattr(reply, "usage", None)
    prompt, completion = (_count(usage, f"{name}_tokens") for name in ("prompt", "completion"))
    if not prompt or completion is None:  # litellm makes up zeros
        return {"metered": False, "prompt_tokens": 0, "completion_tokens": 0}
    return {"metered": True, "prompt_tokens": prompt, "completion_tokens": completion}


def _count(usage: Any, name: str) -> int | None:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else None


def problem_of(error: Exception, keys: dict[str, str], op: str) -> dict[str, str]:
    """Return the fields of a problem for an error in operation `op`, without any of the `keys`."""
    detail, caller = str(error)[:2000], CALLERS[op]
    for key in filter(None, keys.values()):
        detail = detail.replace(key, "…")
    kind: type[Exception] = type(error)
    if isinstance(error, TimeoutError):
        kind = litellm.Timeout
    elif "connection error" in str(error).lower():  # litellm calls a lost one a server's error
        kind = litellm.APIConnectionError
    code, words, hint = next(
        (texts for known, *texts in WORDS if issubclass(kind, known)),
        ("failed", f"The call of the {{model}} failed: {type(error).__name__}.", ""),
    )
    return {
        "code": f"{caller['prefix']}.{code}",
        "message": words.format_map(caller),
        "hint": hint.format_map(caller),
        "detail": detail,
    }


def waiting_time(error: BaseException, attempt: int) -> float:
    """Seconds before a retry: the provider's Retry-After, else exponential back-off with jitter
    after `attempt` earlier retries."""
    response = getattr(error, "response", None)
    header = getattr(response, "headers", {}).get("retry-after") if response is not None else None
    try:
        return min(float(header), LONGEST_WAIT_S) if header else _backoff(attempt)
    except ValueError:
        return _backoff(attempt)


def _backoff(attempt: int) -> float:
    return min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S) * random.uniform(0.5, 1.0)


def refuse_redirects() -> None:
    """Disable redirects for all httpx clients of this process. Following one would send a request
    with a key in its headers to another address."""
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
    os.environ |= VARIABLES  # a forked process starts with those of its request
    hide_from_peers()
    exit_with_engine(life)
    asyncio.run(serve(line))


if __name__ == "__main__":
    main()
