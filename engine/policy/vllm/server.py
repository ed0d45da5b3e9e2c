"""Client of one vLLM server, in tokens: completions, adapters, log-probs, health.

It relies on facts of vLLM 0.31 (tested): `/health` answers before the first request works, so a
one-token probe shows readiness; ids of stop tokens are part of the completion; `prompt_logprobs`
are never taken from the prefix cache.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from engine.policy.base import SampledToken, SampleRequest
from engine.policy.vllm.process import BASE, ServerPlan, ServerProcess
from engine.protocol.problems import PolicyError, Problem, RolloutError

START_S = 900.0
"""Start timeout in seconds: loading a large model and compiling its kernels takes minutes."""
LOOK_S = 1.0
STANDSTILL_S = 4.0
"""Seconds that a process may be stopped by a signal."""
SILENCE_S = 20.0
"""Seconds without a token after which an idle server with active requests counts as hung."""
PATIENCE_S = 180.0
"""Seconds without a token after which a computing server counts as hung."""
IDLE = 0.3
"""Number of busy CPU cores below which a server counts as idle."""
CALL_S = 60.0


class ServerGone(Exception):
    """Error of a request during which the server ended or hung."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


IMAGES_PATH = "/inference/v1/generate"
SAMPLING = (
    *("max_tokens", "temperature", "top_p", "seed", "stop_token_ids", "ignore_eos", "logprobs"),
    *("skip_special_tokens", "structured_outputs", "watermarking"),
)
"""Fields of a request that are sampling parameters of vLLM."""


class VllmServer:
    """Client of a vLLM server: `start` it, `close` it. Every call may raise ServerGone."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        transport = httpx.AsyncHTTPTransport(
            uds=str(process.socket), limits=httpx.Limits(max_connections=None)
        )
        timeout = httpx.Timeout(CALL_S, read=None, pool=None)  # the watch knows better
        self._http = httpx.AsyncClient(
            transport=transport, base_url="http://vllm", timeout=timeout, trust_env=False
        )
        self._under_way = 0
        self.last_response_s = time.monotonic()
        """Time of its last response, by the monotonic clock."""
        self._paused = False
        self._gone: Problem | None = None
        self._watching: asyncio.Task[None] | None = None
        self.version = ""

    @classmethod
    async def start(cls, plan: ServerPlan, log: Path) -> "VllmServer":
        """Start a server; returns after a successful probe. Raises PolicyError on failure."""
        process = await ServerProcess.spawn(plan, log)
        server = cls(process)
        try:
            await server._ready(plan)
        except BaseException:
            await asyncio.shield(server.close())
            raise
        server._watching = asyncio.create_task(server._watch(), name="vllm watch")
        return server

    @property
    def pids(self) -> list[int]:
        return self._process.pids

    async def close(self) -> None:
        """End the server and its processes."""
        if self._watching:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._http.aclose()
        await self._process.end()

    async def complete(
        self, request: SampleRequest, model: str, stops: list[int]
    ) -> AsyncIterator[list[SampledToken]]:
        """Yield tokens of model or adapter `model` as they are sampled. The token ids `stops` end
        the completion and are part of it. A grammar masks the logits before temperature, top-p and
        softmax, with `stops` as its end tokens, and log-probs are those of the masked distribution
        (`--logprobs-mode processed_logprobs`), as in the torch sampler. Raises PolicyError if the
        server refuses the request, RolloutError if it ends one with a grammar by an error."""
        body = {
            "model": model,
            "cache_salt": model,
            "prompt": request.tokens,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": request.seed,
            "stop_token_ids": stops,
            "ignore_eos": True,  # those of the model are among `stops`, where they count
            "logprobs": request.top_logprobs,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "watermarking": False,
            "skip_special_tokens": False,
            "stream": True,
        }
        if request.grammar is not None:
            body["structured_outputs"] = {"structural_tag": request.grammar}
        path = "/v1/completions"
        if request.images:
            path, body = IMAGES_PATH, _with_images(body, request)
        async with self._waiting():
            async with self._http.stream("POST", path, json=body) as answer:
                if answer.is_error:
                    raise _refused(answer, await answer.aread())
                async for line in answer.aiter_lines():
                    self.last_response_s = time.monotonic()
                    if line.startswith("data: {"):
                        message = json.loads(line[6:])
                        if request.grammar is not None and "error" in message:
                            raise _failed(message["error"])  # of the grammar, not of the server
                        yield _tokens(message, request.top_logprobs)

    async def logprobs(self, tokens: list[int], model: str) -> list[float]:
        """Log-probs of each token after the first by model or adapter `model`, at temperature 1."""
        answer = await self._call(
            "/v1/completions",
            {"model": model, "prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0,
             "temperature": 1.0, "watermarking": False},
        )  # fmt: skip
        rows = answer["choices"][0]["prompt_logprobs"][1:]
        return [row[str(token)]["logprob"] for token, row in zip(tokens[1:], rows, strict=True)]

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Load the adapter in the PEFT folder `folder` under `name`, which must be unused. Raises
        PolicyError if the server refuses the adapter."""
        await self._call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload_adapter(self, name: str) -> None:
        await self._call("/v1/unload_lora_adapter", {"lora_name": name})

    async def sleep(self, cache_only: bool) -> None:
        """Release GPU memory of keys and values and, unless `cache_only`, of weights, until
        `wake`."""
        await self._call("/release_kv_cache_memory" if cache_only else "/sleep?level=1&mode=wait")

    async def wake(self) -> None:
        await self._call("/wake_up")

    async def pause(self) -> None:
        """Pause all requests until `resume`; a server that sends nothing meanwhile does not count
        as dead."""
        self._paused = True
        await self._call("/pause?mode=keep")

    async def resume(self) -> None:
        await self._call("/resume")
        self.last_response_s, self._paused = time.monotonic(), False

    async def counters(self) -> dict[str, float]:
        """Prefix cache counters `queries` and `hits` in tokens since the start."""
        async with self._waiting():
            text = (await self._http.get("/metrics", timeout=CALL_S)).text
        found = {}
        for line in text.splitlines():
            for name in ("queries", "hits"):
                if line.startswith(f"vllm:prefix_cache_{name}_total{{"):
                    found[name] = float(line.rpartition(" ")[2])
        return found

    async def _ready(self, plan: ServerPlan) -> None:
        end = time.monotonic() + START_S
        while not await self._is_healthy():
            if not self._process.alive:
                raise PolicyError(await asyncio.to_thread(self._process.failure, plan))
            if time.monotonic() > end:
                raise PolicyError.of(
                    "sampler.not_started",
                    f"vLLM was not ready after {START_S / 60:.0f} minutes.",
                    "See the run's log.",
                )
            await asyncio.sleep(0.25)
        probe = SampleRequest(tokens=[1], max_tokens=1, seed=0)
        try:
            tokens = [token async for part in self.complete(probe, BASE, []) for token in part]
        except (ServerGone, PolicyError) as error:
            problem = await asyncio.to_thread(self._process.failure, plan)
            raise PolicyError(problem) from error
        if len(tokens) != 1:
            raise PolicyError.of(
                "sampler.not_started",
                f"vLLM returned {len(tokens)} tokens for a test request of one token.",
            )
        self.version = (await self._http.get("/version", timeout=CALL_S)).json()["version"]

    async def _is_healthy(self) -> bool:
        try:
            return (await self._http.get("/health", timeout=5.0)).is_success
        except httpx.HTTPError:
            return False

    async def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        async with self._waiting():
            answer = await self._http.post(path, json=body, timeout=httpx.Timeout(None))
        content = answer.content
        if answer.is_error:
            raise _refused(answer, content)
        return json.loads(content) if content[:1] == b"{" else None

    @contextlib.asynccontextmanager
    async def _waiting(self) -> AsyncIterator[None]:
        """Context manager of a request: the watchdog is active, and a hang that it finds becomes
        the request's error."""
        if not self._under_way:
            self.last_response_s = time.monotonic()
        self._under_way += 1
        try:
            yield
            self.last_response_s = time.monotonic()
        except (httpx.HTTPError, json.JSONDecodeError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not self._http.is_closed:
                raise
            raise ServerGone(self._gone or await self._reason()) from error
        finally:
            self._under_way -= 1

    async def _reason(self) -> Problem:
        """Problem of a broken connection, after a short wait for the process to end."""
        for _ in range(20):
            if not self._process.alive:
                return _gone("its process ended")
            await asyncio.sleep(0.1)
        return _gone("one of its processes ended or closed the connection")

    async def _watch(self) -> None:
        """Kill the server if it hangs, which fails its active requests."""
        standing = idle = 0.0
        used = await asyncio.to_thread(self._process.cpu_seconds)
        while self._process.alive:
            await asyncio.sleep(LOOK_S)
            stopped = await asyncio.to_thread(self._process.stopped)
            standing = standing + LOOK_S if stopped else 0.0
            used, before = await asyncio.to_thread(self._process.cpu_seconds), used
            waited_for = self._under_way and not self._paused
            silence = time.monotonic() - self.last_response_s if waited_for else 0.0
            idle = idle + LOOK_S if silence and used - before < IDLE * LOOK_S else 0.0
            if standing > STANDSTILL_S:
                self._gone = _gone("one of its processes was stopped by a signal")
            elif (silence > SILENCE_S and idle > SILENCE_S / 2) or silence > PATIENCE_S:
                self._gone = _gone(f"it sent no token for {silence:.0f} s and was stopped")
            if self._gone:
                return await self._process.kill()
        self._gone = _gone("its process ended")


def _tokens(message: dict[str, Any], top: int) -> list[SampledToken]:
    """Tokens of one message of the stream; the last message has none."""
    if error := message.get("error"):
        raise httpx.RemoteProtocolError(str(error))
    tokens = []
    for choice in message.get("choices", ()):
        entry = choice.get("logprobs")
        if not entry:
            continue
        if "content" in entry:  # of the endpoint for images
            pairs = zip(choice["token_ids"], entry["content"], strict=True)
            tokens += [
                SampledToken(token, of["logprob"], _best(_row(of["top_logprobs"]), top))
                for token, of in pairs
            ]
            continue
        rows = zip(choice["token_ids"], entry["token_logprobs"], entry["top_logprobs"], strict=True)
        tokens += [SampledToken(token, logprob, _best(row, top)) for token, logprob, row in rows]
    return tokens


def _row(entries: list[dict[str, Any]]) -> dict[str, float]:
    return {entry["token"]: entry["logprob"] for entry in entries}


def _with_images(body: dict[str, Any], request: SampleRequest) -> dict[str, Any]:
    """Body of a completion request in the form of vLLM's endpoint for tokens and images; its
    middleware (startup/atelier_images.py) adds the images."""
    params = {name: value for name, value in body.items() if name in SAMPLING}
    return {
        "model": body["model"],
        "cache_salt": body["cache_salt"],
        "token_ids": body["prompt"],
        "sampling_params": params,
        "stream": True,
        "atelier_images": [image.model_dump() for image in request.images],
    }


def _best(row: dict[str, float] | None, top: int) -> list[tuple[int, float]]:
    """Most likely tokens of a row with names `token_id:N`, which also has the sampled token."""
    if not top or not row:
        return []
    pairs = [(int(name.partition(":")[2]), logprob) for name, logprob in row.items()]
    return sorted(pairs, key=lambda pair: -pair[1])[:top]


def _refused(answer: httpx.Response, body: bytes) -> Exception:
    """Error for a refused request, or for a server error (5xx), which its front end returns for a
    moment after a process behind it has died."""
    data = json.loads(body) if body[:1] == b"{" else {"message": body.decode(errors="replace")}
    error = data.get("error", data)
    words = error.get("message", str(data)) if isinstance(error, dict) else str(error)
    if answer.is_server_error:
        return httpx.RemoteProtocolError(words)
    return PolicyError.of(
        "sampler.refused",
        f"vLLM rejected a request: {words[:400]}",
        "See the run's log for the request.",
        detail=str(data)[:4000],
    )


def _failed(error: Any) -> RolloutError:
    """Error for a request with a grammar that the server ended with an error."""
    words = error.get("message", str(error)) if isinstance(error, dict) else str(error)
    return RolloutError.of(
        "sampler.refused",
        f"vLLM ended a completion with an output grammar: {words[:400]}",
        "See the run's log for the request.",
        detail=str(error)[:4000],
    )


def _gone(why: str) -> Problem:
    return Problem(
        code="sampler.died",
        message=f"The vLLM server has exited: {why}.",
        hint="See the end of the run's log.",
    )
