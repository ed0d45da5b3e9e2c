"""Sampling by a supervised vLLM server: one that dies or hangs is restarted with its adapters, and
active completions continue after the tokens that they have.

Each adapter has a unique name, so no response can come from an older one of the same name, and
prompts are cached by name, so keys and values are never shared between adapters.
"""

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from engine.policy.base import OnRestart, SampledToken, SampleRequest
from engine.policy.vllm.process import BASE, ServerPlan
from engine.policy.vllm.server import ServerGone, VllmServer
from engine.protocol.problems import Problem, RolloutError
from engine.runtime.child import ChildDied
from engine.runtime.seeds import derive
from engine.runtime.timeouts import Outages

T = TypeVar("T")
MOST_RESTARTS = 3
"""Maximum number of restarts between two updates."""


class VllmSampler:
    """Sampler: `start` it, `close` it. Raises ChildDied if the server keeps dying."""

    def __init__(self, plan: ServerPlan, log: Path, server: VllmServer) -> None:
        self._plan, self._log, self._server = plan, log, server
        self._turn = asyncio.Lock()
        self._folders: dict[str, Path] = {}
        self._under_way: Counter[str] = Counter()
        self._restarts = 0
        self._asleep = False
        self._closed = False
        self._starting: asyncio.Task[VllmServer] | None = None
        self.outages, self._holding = Outages(), contextlib.ExitStack()
        self._prompt_tokens = {"queries": 0.0, "hits": 0.0}
        self.current = BASE
        """Adapter name for new requests."""
        self.switch_s = 0.0
        """Seconds spent on putting the server to sleep and waking it, since the last reading."""
        self.on_restart: OnRestart | None = None

    @classmethod
    async def start(cls, plan: ServerPlan, log: Path) -> "VllmSampler":
        return cls(plan, log, await VllmServer.start(plan, log))

    @property
    def words(self) -> str:
        return f"vLLM {self._server.version}, {self._plan.dtype}"

    @property
    def pids(self) -> list[int]:
        return self._server.pids

    async def close(self) -> None:
        """End the server and start no further one; waiting requests receive ChildDied."""
        self._closed = True
        if starting := self._starting:
            starting.cancel()
            await asyncio.wait({starting})
        async with self._turn:
            await self._server.close()

    async def sample(
        self, request: SampleRequest, stops: list[int]
    ) -> AsyncIterator[list[SampledToken]]:
        """Yield the sampled tokens of a request in chunks, all by the adapter that was current at
        the start. `stops`: token ids that end the completion. A server that dies is replaced up to
        `MOST_RESTARTS` times, and sampling continues; then ChildDied is raised. Raises RolloutError
        if the server dies in a completion with a grammar, which cannot continue in the middle."""
        name, sampled = self.current, list[int]()
        self._under_way[name] += 1
        try:
            while len(sampled) < request.max_tokens and not (sampled and sampled[-1] in stops):
                server = await self._awake()
                try:
                    async for tokens in server.complete(_behind(request, sampled), name, stops):
                        sampled += [token.token for token in tokens]
                        if tokens:
                            yield tokens
                    return
                except ServerGone as gone:
                    await self._revive(server, gone)
                    if request.grammar is not None and sampled:
                        raise _interrupted() from gone
        finally:
            self._under_way[name] -= 1

    async def ask(self, question: Callable[[VllmServer], Awaitable[T]]) -> T:
        """Return the result of `question`, called with the running server. If the server dies
        meanwhile, it is replaced and `question` is called again; ChildDied after `MOST_RESTARTS`
        replacements."""
        while True:
            server = await self._awake()
            try:
                return await question(server)
            except ServerGone as gone:
                await self._revive(server, gone)

    async def offer(self, name: str, folder: Path) -> None:
        """Load the adapter in the PEFT folder `folder` under `name`; requests use it only after
        `use`. Raises PolicyError if the server refuses it."""
        await self.ask(lambda server: server.load_adapter(name, folder))
        self._folders[name] = folder

    async def take_back(self, name: str) -> None:
        folder = self._folders.pop(name)
        await self.ask(lambda server: server.unload_adapter(name))
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def use(self, name: str) -> None:
        """Use loaded adapter `name` for new requests; unload others without active requests."""
        self.current, self._restarts = name, 0
        for old in [n for n in self._folders if n != name and not self._under_way[n]]:
            await self.take_back(old)

    async def prompt_sharing(self) -> dict[str, float]:
        """Metric `sharing/sample`: share of prompt tokens since the last call that were computed,
        not read from the prefix cache; empty if there were no prompts."""
        now = await self.ask(VllmServer.counters)
        queries, hits = (max(0.0, now[n] - self._prompt_tokens[n]) for n in ("queries", "hits"))
        self._prompt_tokens = now
        return {"sharing/sample": 1 - hits / queries} if queries else {}

    async def hold(self) -> None:
        """Pause active completions until `go_on`; the time counts as an outage."""
        async with self._turn:
            self._holding.enter_context(self.outages.during())
            with contextlib.suppress(ServerGone):  # then nothing is under way
                await self._server.pause()

    async def go_on(self) -> None:
        async with self._turn:
            with contextlib.suppress(ServerGone):
                await self._server.resume()
            self._holding.close()

    async def rest(self, cache_only: bool) -> None:
        """Release the server's GPU memory, with `cache_only` that of keys and values only, until
        the next request. Does nothing while requests are active."""
        async with self._turn:
            if self._asleep or any(self._under_way.values()):
                return
            start_s = time.monotonic()
            with contextlib.suppress(ServerGone):  # whoever needs it next starts another
                await self._server.sleep(cache_only)
            self._asleep = True
            self.switch_s += time.monotonic() - start_s

    async def _awake(self) -> VllmServer:
        async with self._turn:
            if self._asleep:
                start_s = time.monotonic()
                with contextlib.suppress(ServerGone):  # the question itself will say so
                    await self._server.wake()
                self._asleep = False
                self.switch_s += time.monotonic() - start_s
            return self._server

    async def _revive(self, dead: VllmServer, gone: ServerGone) -> None:
        """Replace a dead server; concurrent callers share the replacement."""
        with self.outages.during(since=dead.last_response_s):
            async with self._turn:
                if self._server is dead:
                    await self._replace(gone.problem)

    async def _replace(self, why: Problem) -> None:
        """Start another server. If the caller is cancelled, later ones wait for the same start."""
        if self._closed:
            raise ChildDied(why)
        if self._starting is None:
            self._restarts += 1
            if self._restarts > MOST_RESTARTS:
                raise ChildDied(why)
            if self.on_restart:
                await self.on_restart(why, self._restarts)
            await self._server.close()
            if self._closed:
                raise ChildDied(why)
            starting = VllmServer.start(self._plan, self._log)
            self._starting = asyncio.create_task(starting, name="vllm start")
        await asyncio.wait({self._starting})
        started, self._starting = self._starting, None
        if started.cancelled():
            raise ChildDied(why)
        self._server = started.result()
        self._asleep = False
        self._prompt_tokens = {"queries": 0.0, "hits": 0.0}
        try:
            for name, folder in self._folders.items():
                await self._server.load_adapter(name, folder)
        except ServerGone as again:
            raise ChildDied(again.problem) from again


def _interrupted() -> RolloutError:
    return RolloutError.of(
        "sampler.interrupted",
        "The vLLM server ended during a completion with an output grammar, which cannot continue "
        "in the middle.",
        "The server was restarted: send the request again.",
    )


def _behind(request: SampleRequest, sampled: list[int]) -> SampleRequest:
    """Remaining part of an interrupted request, with a new random stream, since the server's stream
    position is unknown."""
    if not sampled:
        return request
    return request.model_copy(
        update={
            "tokens": request.tokens + sampled,
            "max_tokens": request.max_tokens - len(sampled),
            "seed": derive(request.seed, "behind", len(sampled)) % 2**31,
        }
    )
