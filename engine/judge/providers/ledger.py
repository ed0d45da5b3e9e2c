"""Ledger of judge calls: cost and answers, in the run's database, so that they survive restarts and
crashes.

A call is recorded at its maximum cost before it is sent, and at its actual cost once it is
answered. A call without an answer keeps its maximum cost, because it may have been billed. Each
retry is a separate record.
"""

import asyncio
import uuid
from collections.abc import Callable

from engine.judge.prompting.prompt import Messages
from engine.judge.providers.client import Provider
from engine.protocol.config.project import JudgeConfig
from engine.protocol.problems import Problem
from engine.protocol.records.judging import Call
from engine.storage.run_folder.run import Run


class Account:
    """Budget of one purpose within a run. `spent` returns the cost in USD, with pending calls at
    their maximum."""

    def __init__(self, run: Run, budget_usd: float | None, spent: Callable[[], float]) -> None:
        self._run = run
        self._budget = budget_usd
        self.spent = spent

    async def open(self, key: str, model: str, most: float, attempt: str = "") -> str | None:
        """Reserve and record the maximum cost (`most`, USD) of a call with this cache key.
        `attempt` is the trajectory id if a rollout makes it. Returns the id of the call, or None if
        it exceeds the budget."""
        async with self._run.budget.counting:
            if self._budget is not None and self.spent() + most > self._budget:
                return None
            call_id = uuid.uuid4().hex
            await self._run.writer.open_call(call_id, key, model, most, attempt)
            return call_id


class Ledger:
    """Judge client with cache and budget."""

    def __init__(self, run: Run, provider: Provider, config: JudgeConfig) -> None:
        self._run = run
        self._provider = provider
        self._config = config
        self._account = Account(run, config.budget_usd, run.reader.judge_cost)

    @property
    def spent(self) -> float:
        """Cost in USD, with pending calls at their maximum."""
        return self._account.spent()

    async def ask(self, model: str, messages: Messages, rubric: str) -> Call:
        """Return the stored call for this prompt, or make a new one, with retries. `rubric` is its
        version. A call beyond the budget has that problem and is not stored, to be made later."""
        key = self._provider.key_of(model, messages)
        async with self._run.budget.questions.setdefault(
            key, asyncio.Lock()
        ):  # asked twice at once: paid once
            if known := self._run.reader.call(key):
                return known
            most, attempt = self._provider.most_cost(model, messages), 0
            while True:
                call_id = await self._account.open(key, model, most)
                if call_id is None:
                    problem = self._too_dear(most)
                    return Call(
                        key=key, judge=model, rubric=rubric, messages=messages, problem=problem
                    )
                call, wait_s = await self._provider.ask(model, messages, rubric, attempt)
                await self._run.writer.close_call(call_id, call)
                if wait_s is None or attempt == self._config.retries:
                    return call
                await asyncio.sleep(wait_s)
                attempt += 1

    def _too_dear(self, most: float) -> Problem:
        return Problem(
            code="judge.budget",
            message=f"The judge's budget is used up: ${self.spent:.2f} of "
            f"${self._config.budget_usd:.2f}, and the next request may cost ${most:.4f}.",
            hint="Raise judge.budget_usd, or use a cheaper judge.",
        )
