"""Client of the judge process: sends prompts and returns calls with cost."""

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import NamedTuple

from engine.judge.prompting.prompt import Messages
from engine.judge.providers.access import Access, ProviderClient
from engine.protocol.config.project import EvaluateConfig, JudgeConfig
from engine.protocol.problems import ConfigError, Problem
from engine.protocol.records.judging import Call, Usage, provider_of

TOKEN_MARGIN = 64
"""Maximum number of tokens that a provider adds to each message."""


class Price(NamedTuple):
    """Price in USD per prompt and completion token."""

    prompt: float
    completion: float

    def of(self, usage: Usage) -> float:
        return usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion


class Provider:
    """Client of a judge process or of the home machine. Create with `start`, end with `close`."""

    def __init__(
        self, client: ProviderClient, config: JudgeConfig, prices: dict[str, Price]
    ) -> None:
        self._client = client
        self._config = config
        self._prices = prices
        self._room = asyncio.Semaphore(config.concurrency)

    @classmethod
    async def start(cls, config: JudgeConfig, access: Access, log: Path) -> "Provider":
        """Start a client for the judges in `config` and look up their prices. Raises ConfigError if
        one is unknown."""
        client = await access.open("judge", log)
        try:
            prices = {model: await price_of(client, config, model) for model in config.models}
        except BaseException:
            await client.close()
            raise
        return cls(client, config, prices)

    @property
    def pid(self) -> int:
        return self._client.pid

    def key_of(self, model: str, messages: Messages) -> str:
        """Return the cache key of a prompt: a hash of model, settings and messages."""
        config = self._config
        settings = [model, config.base_url, config.temperature, config.max_tokens, messages]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def most_cost(self, model: str, messages: Messages) -> float:
        """Maximum cost of a call in USD; every token has at least one byte of text."""
        prompt_tokens = sum(len(m["content"].encode()) + TOKEN_MARGIN for m in messages)
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=self._config.max_tokens)
        return self._prices[model].of(usage)

    async def count(self, model: str, questions: list[Messages]) -> list[int]:
        """Return the number of tokens of each prompt."""
        answer = await self._client.ask("count", model=model, questions=questions)
        return list(answer["tokens"])

    def cost(self, model: str, usage: Usage) -> float:
        """Cost of a call in USD."""
        return self._prices[model].of(usage)

    async def lend(self, access: Access) -> None:
        """Replace the worker's API keys by those of `access`."""
        await access.lend(self._client)

    @property
    def alive(self) -> bool:
        return self._client.alive

    async def ask(
        self, model: str, messages: Messages, rubric: str, attempt: int
    ) -> tuple[Call, float | None]:
        """Make one call, after `attempt` earlier tries; `rubric` is the version that is stored with
        it. Returns the call with its reply or problem, and the seconds to wait before a retry
        (None: a retry does not help)."""
        config, key = self._config, self.key_of(model, messages)
        start_s = time.monotonic()
        async with self._room:
            answer = await self._client.ask(
                "ask",
                key=key,
                model=model,
                provider=provider_of(model),
                messages=messages,
                base_url=config.base_url,
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                timeout_s=config.timeout_s,
                attempt=attempt,
            )
        failed = answer.get("problem")
        usage = Usage(
            prompt_tokens=answer.get("prompt_tokens") or 0,
            completion_tokens=answer.get("completion_tokens") or 0,
            known=answer["metered"],
        )
        cost = self._prices[model].of(usage) if usage.known else self.most_cost(model, messages)
        call = Call(
            key=key,
            judge=model,
            rubric=rubric,
            messages=messages,
            reply=answer.get("reply", ""),
            finish=answer.get("finish", ""),
            usage=usage.model_copy(update={"cost_usd": cost}),
            seconds=time.monotonic() - start_s,
            at=time.time(),
            problem=Problem.model_validate(failed) if failed else None,
        )
        return call, answer.get("wait_s")

    async def close(self) -> None:
        await self._client.close()


async def price_of(
    client: ProviderClient, config: JudgeConfig | EvaluateConfig, model: str
) -> Price:
    """Return the price of a model: of the settings, else of the client's list. Raises ConfigError
    if it is unknown."""
    if config.price_prompt is not None and config.price_completion is not None:
        return Price(config.price_prompt / 1e6, config.price_completion / 1e6)
    if config.base_url:
        return Price(0.0, 0.0)  # the person's own server
    known = await client.ask("price", model=model)
    if not known:
        section = "judge" if isinstance(config, JudgeConfig) else "evaluate"
        raise ConfigError.of(
            f"{section}.price_unknown",
            f"The price of {model} is unknown, so the budget cannot be enforced.",
            f"Set {section}.price_prompt and {section}.price_completion (dollars per million "
            "tokens).",
        )
    return Price(known["prompt"], known["completion"])
