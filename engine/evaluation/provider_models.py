"""Models of providers as contestants: forwards an agent's requests, returns responses with cost.

The process is that of the judges, with keys in memory. A request is recorded at its maximum cost
before it is sent, and at its actual cost afterwards; a request beyond the budget is not sent.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

from engine.judge.providers.access import Access, ProviderClient
from engine.judge.providers.client import TOKEN_MARGIN, Price, price_of
from engine.judge.providers.ledger import Account
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Call, Usage, provider_of
from engine.rollout.gateway.sessions import NoProviderAnswer, ProviderAnswer
from engine.storage.run_db.reader import ATTEMPT_KEY
from engine.storage.run_folder.run import Run


class Providers:
    """Client of one process for all provider models of an evaluation."""

    def __init__(self, run: Run, client: ProviderClient, prices: dict[str, Price]) -> None:
        config = run.config.evaluate
        self._run = run
        self._client = client
        self._prices = prices
        self._config = config
        self._room = asyncio.Semaphore(config.concurrency)
        self._account = Account(run, config.budget_usd, run.reader.attempts_cost)

    @classmethod
    async def start(cls, run: Run, models: Sequence[str], access: Access) -> "Providers":
        """Start a client for these models. Raises ConfigError if a price is unknown."""
        client = await access.open("provider", run.log_file)
        try:
            config = run.config.evaluate
            prices = {model: await price_of(client, config, model) for model in models}
            for model, price in prices.items():
                await run.log("info", "provider", price_words(model, price, config.budget_usd))
        except BaseException:
            await client.close()
            raise
        return cls(run, client, prices)

    def model(self, name: str) -> "ProviderModel":
        return ProviderModel(self, name, self._run.config)

    async def close(self) -> None:
        await self._client.close()

    async def say(
        self, model: str, attempt: str, call: str, body: dict[str, Any]
    ) -> ProviderAnswer:
        """Send request `body` of the rollout with trajectory id `attempt` to `model`, with retries.
        `call` tells the requests of the rollout apart. Raises NoProviderAnswer if it finally fails,
        or would exceed the budget."""
        key = self._key(model, attempt, call, body)
        most, spent, number = self._most_cost(model, body), 0.0, 0
        while True:
            call_id = await self._account.open(key, model, most, attempt)
            if call_id is None:
                raise NoProviderAnswer(self._too_dear(most), spent)
            start_s = time.monotonic()
            answer = await self._ask(key, model, body, number)
            seconds = time.monotonic() - start_s
            done = self._call(key, model, body, answer, most, seconds)
            await self._run.writer.close_call(call_id, done, attempt)
            spent += done.usage.cost_usd
            if done.problem is None:
                usage = done.usage.model_copy(update={"cost_usd": spent})
                return ProviderAnswer(answer["message"], answer["finish"], usage)
            wait_s = answer.get("wait_s")
            if wait_s is None or number == self._config.retries:
                raise NoProviderAnswer(done.problem, spent)
            await asyncio.sleep(wait_s)
            number += 1

    async def _ask(self, key: str, model: str, body: dict[str, Any], number: int) -> dict[str, Any]:
        async with self._room:
            return await self._client.ask(
                "chat",
                key=key,
                model=model,
                provider=provider_of(model),
                request=body,
                base_url=self._config.base_url,
                timeout_s=self._config.timeout_s,
                attempt=number,
            )

    def _key(self, model: str, attempt: str, call: str, body: dict[str, Any]) -> str:
        """Return the idempotency key of a request. It differs between trajectories, and is the same
        if the request is repeated after a crash, so that a provider may bill it once."""
        config = [self._run.spec.id, model, self._config.base_url, attempt, call, body]
        return ATTEMPT_KEY + hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()

    def _most_cost(self, model: str, body: dict[str, Any]) -> float:
        """Maximum cost of one try in USD; every token has at least one byte of text."""
        text = json.dumps([body["messages"], body.get("tools")], ensure_ascii=False)
        tokens = len(text.encode()) + TOKEN_MARGIN * len(body["messages"])
        usage = Usage(prompt_tokens=tokens, completion_tokens=body["max_tokens"])
        return self._prices[model].of(usage)

    def _call(
        self,
        key: str,
        model: str,
        body: dict[str, Any],
        answer: dict[str, Any],
        most: float,
        seconds: float,
    ) -> Call:
        usage = Usage(
            prompt_tokens=answer.get("prompt_tokens") or 0,
            completion_tokens=answer.get("completion_tokens") or 0,
            known=answer["metered"],
        )
        cost = self._prices[model].of(usage) if usage.known else most
        failed = answer.get("problem")
        return Call(
            key=key,
            judge=model,
            rubric="",
            messages=body["messages"],
            reply=json.dumps(answer.get("message") or {}, ensure_ascii=False),
            usage=usage.model_copy(update={"cost_usd": cost}),
            seconds=seconds,
            at=time.time(),
            problem=Problem.model_validate(failed) if failed else None,
        )

    def _too_dear(self, most: float) -> Problem:
        return Problem(
            code="evaluate.budget",
            message=f"The evaluation's budget is used up: ${self._account.spent():.2f} of "
            f"${self._config.budget_usd:.2f}, and the next request may cost ${most:.4f}.",
            hint="Raise evaluate.budget_usd, or use a cheaper model.",
        )


class ProviderModel:
    """Model of a provider, as used by a rollout."""

    def __init__(self, providers: Providers, name: str, config: ProjectConfig) -> None:
        self.name = name
        self.max_tokens = config.evaluate.max_tokens or config.train.max_tokens
        self._providers = providers

    async def say(self, attempt: str, call: str, body: dict[str, Any]) -> ProviderAnswer:
        return await self._providers.say(self.name, attempt, call, body)


def price_words(model: str, price: Price, budget_usd: float | None) -> str:
    most = "no budget" if budget_usd is None else f"at most ${budget_usd:.2f} in total"
    return (
        f"{model}: ${price.prompt * 1e6:.2f} per million input tokens, "
        f"${price.completion * 1e6:.2f} per million output tokens; {most}."
    )
