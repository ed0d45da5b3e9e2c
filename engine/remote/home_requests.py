"""Judge and provider requests of remote runs, executed here with API keys that stay on this
machine.

A request is executed only for a run that was started from this machine on the same server, while
the run is active or the person tests its judge. Address, provider, models, limits and budget are
taken from the settings kept here (`started`), text and a few bounded numbers from the request.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from engine.judge.providers.access import ProviderClient
from engine.judge.providers.client import TOKEN_MARGIN, Price, price_of
from engine.protocol.config.project import EvaluateConfig, JudgeConfig
from engine.protocol.identifiers import is_run_id
from engine.protocol.problems import Refused, first_invalid
from engine.protocol.records.judging import Usage, provider_of
from engine.protocol.requests.home import (
    MOST_TEXT_BYTES,
    AskFields,
    Asking,
    ChatFields,
    CountFields,
    HomeRequest,
    PriceFields,
)
from engine.remote.started_runs import StartedRun, StartedRuns
from engine.storage.project import load_config
from engine.storage.run_folder.run import DATABASE, run_reader

BEGINNING = ("run.queued", "run.started", "run.continued", "run.extended")
ENDING = ("run.stopped", "run.failed", "run.finished")


class Purpose(NamedTuple):
    """Purpose of a request (`judge` or `evaluate`), and the settings that apply to it."""

    name: str
    """`judge` or `evaluate`: the section whose budget pays."""
    config: JudgeConfig | EvaluateConfig
    max_tokens: int


@dataclass
class Trial:
    """Test of a judge on a run, started by a person on this machine, with the judge settings to
    test."""

    run_id: str
    host: str
    project: Path
    config: JudgeConfig


class HomeRequestService:
    """Service that executes requests of remote runs to judges and providers; one per engine.
    `connect` returns the judge's process with the current API keys."""

    def __init__(self, runs: StartedRuns, connect: Callable[[], Awaitable[ProviderClient]]) -> None:
        self._runs, self._connect = runs, connect
        self._trials: list[Trial] = []
        self._resumed: dict[str, int] = {}
        self._prices: dict[tuple[str, str], Price] = {}
        self._rooms: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._counting = asyncio.Lock()
        self._money = asyncio.Lock()

    @contextlib.contextmanager
    def trial(self, trial: Trial) -> Iterator[None]:
        """Allow API requests for the judge test `trial` from its server during the block, even if
        the run has ended."""
        self._trials.append(trial)
        try:
            yield
        finally:
            self._trials.remove(trial)

    def resume(self, host: str, folder: Path) -> None:
        """Allow requests of the ended run in `folder` on server `host` again, because the person
        resumes or extends the run. If this machine has no record of the run, one is made with the
        project's current settings. Raises ConfigError."""
        self._resumed[folder.name] = _last(folder)[0]
        if self._runs.find(folder.name, host) is None and is_run_id(folder.name):
            self._runs.add(_adopted(host, folder.parents[1], folder.name))

    async def answer(self, host: str, request: HomeRequest) -> Any:
        """Execute an API request that a run on server `host` has sent, with this machine's API
        keys, and return the result. Raises Refused for a request that the run is not allowed to
        make."""
        trials = (one for one in self._trials if (one.run_id, one.host) == (request.run_id, host))
        trial = next(trials, None)
        run = self._runs.find(request.run_id, host)
        if run is None and trial:
            run = await asyncio.to_thread(_adopted, host, trial.project, request.run_id)
            self._runs.add(run)
        if run is None:
            raise _refused(host, request, "the run was not started from this machine")
        if not run.keys_at_home and trial is None:
            raise _refused(host, request, "the run has its own copy of the API keys")
        if trial is None and await asyncio.to_thread(self._is_over, run):
            raise _refused(host, request, "the run has ended")
        if _size(request.fields) > MOST_TEXT_BYTES:
            raise _refused(host, request, f"the request is larger than {MOST_TEXT_BYTES >> 20} MiB")
        try:
            return await self._carry_out(host, run, request, trial)
        except ValidationError as error:
            why = f"the request is invalid: {first_invalid(error)}"
            raise _refused(host, request, why) from error

    async def _carry_out(
        self, host: str, run: StartedRun, request: HomeRequest, trial: Trial | None
    ) -> Any:
        match request.op:
            case "price":
                price = PriceFields.model_validate(request.fields)
                self._purpose(host, run, request, price, trial)
                return await (await self._connect()).ask("price", model=price.model)
            case "count":
                count = CountFields.model_validate(request.fields)
                self._purpose(host, run, request, count, trial)
                fields = count.model_dump()
                async with self._counting:  # it computes, and is the same for everybody
                    return await (await self._connect()).ask("count", **fields)
            case "ask":
                ask = AskFields.model_validate(request.fields)
                purpose = self._purpose(host, run, request, ask, trial)
                messages = [one.model_dump() for one in ask.messages]
                limit = min(ask.max_tokens, purpose.max_tokens)
                sent = sum(len(one.content.encode()) + TOKEN_MARGIN for one in ask.messages)
                more = {"messages": messages, "max_tokens": limit, "temperature": ask.temperature}
                usage = Usage(prompt_tokens=sent, completion_tokens=limit)
                return await self._pay(run, "ask", purpose, ask, usage, more)
            case "chat":
                chat = ChatFields.model_validate(request.fields)
                purpose = self._purpose(host, run, request, chat, trial)
                limit = min(chat.request.max_tokens, purpose.max_tokens)
                body = chat.request.model_dump(exclude_unset=True) | {"max_tokens": limit}
                sent = _size(body) + TOKEN_MARGIN * len(chat.request.messages)
                usage = Usage(prompt_tokens=sent, completion_tokens=limit)
                return await self._pay(run, "chat", purpose, chat, usage, {"request": body})
        raise _refused(host, request, f"the operation {request.op!a} is unknown")

    def _purpose(
        self,
        host: str,
        run: StartedRun,
        request: HomeRequest,
        fields: PriceFields | CountFields | Asking,
        trial: Trial | None,
    ) -> Purpose:
        """Return the purpose of a request by its model and address. Raises Refused for a model or
        an address that the run was not started with."""
        config, model = run.config, fields.model
        purposes = []
        if request.op != "chat":
            judges = [trial.config] if trial else []
            judges += [config.judge] if config.judge.enabled else []
            purposes = [
                Purpose("judge", judge, judge.max_tokens)
                for judge in judges
                if model in judge.models
            ]
        if request.op in ("chat", "price") and model in run.providers:
            most = config.evaluate.max_tokens or config.train.max_tokens
            purposes.append(Purpose("evaluate", config.evaluate, most))
        if not purposes:
            why = f"the run was not started with the model {model[:100]!a}"
            raise _refused(host, request, why)
        if not isinstance(fields, Asking):
            return purposes[0]
        fitting = [one for one in purposes if one.config.base_url == fields.base_url]
        if not fitting:
            why = f"the run does not use the address {str(fields.base_url)[:200]!a}"
            raise _refused(host, request, why)
        return fitting[0]

    async def _pay(
        self,
        run: StartedRun,
        op: str,
        purpose: Purpose,
        fields: Asking,
        usage: Usage,
        more: dict[str, Any],
    ) -> Any:
        """Reserve the highest possible cost, send the request, then record the true cost."""
        config = purpose.config
        price = await self._price(purpose, fields.model)
        most = price.of(usage)
        room = self._rooms.setdefault(
            (run.run_id, purpose.name), asyncio.Semaphore(config.concurrency)
        )
        async with room:
            await self._reserve(run, purpose, most)
            answer = await (await self._connect()).ask(
                op,
                key=fields.key,
                model=fields.model,
                provider=provider_of(fields.model),
                base_url=config.base_url,
                timeout_s=config.timeout_s,
                attempt=fields.attempt,
                **more,
            )
            await self._spend(run, purpose, _true_cost(price, answer, most) - most)
        return answer

    async def _price(self, purpose: Purpose, model: str) -> Price:
        """Price of a model. Raises ConfigError if its price is unknown."""
        key = (purpose.config.model_dump_json(), model)
        if key not in self._prices:
            self._prices[key] = await price_of(await self._connect(), purpose.config, model)
        return self._prices[key]

    async def _reserve(self, run: StartedRun, purpose: Purpose, most: float) -> None:
        """Add `most` USD to the cost of the run. Raises Refused where that exceeds the budget."""
        budget, spent = purpose.config.budget_usd, run.spent_usd.get(purpose.name, 0.0)
        if budget is not None and spent + most > budget:
            raise Refused.of(
                f"{purpose.name}.budget",
                f"The budget of run {run.run_id} is used up: ${spent:.2f} of "
                f"${budget:.2f}, and the next request may cost ${most:.4f}.",
                f"Raise {purpose.name}.budget_usd for the next run, or use a cheaper model.",
            )
        await self._spend(run, purpose, most)

    async def _spend(self, run: StartedRun, purpose: Purpose, usd: float) -> None:
        """Add a cost in USD to the run's record, and write the record to disk."""
        run.spent_usd[purpose.name] = run.spent_usd.get(purpose.name, 0.0) + usd
        if usd:
            async with self._money:
                await asyncio.to_thread(self._runs.save, run)

    def _is_over(self, run: StartedRun) -> bool:
        """Whether the run has ended, by the events mirrored so far."""
        seq, ended = _last(run.folder)
        return ended and seq > self._resumed.get(run.run_id, 0)


def _adopted(host: str, project: Path, run_id: str) -> StartedRun:
    """Make the record of a run that was not recorded on this machine, with the project's current
    settings. Raises ConfigError."""
    config = load_config(project)
    return StartedRun(run_id=run_id, host=host, project=str(project), config=config)


def _last(folder: Path) -> tuple[int, bool]:
    """`seq` of the last event that begins or ends a run, and whether it is an end."""
    if not (folder / DATABASE).is_file():
        return 0, False
    with run_reader(folder) as reader:
        events = reader.events_of(*BEGINNING, *ENDING)
    last = events[-1] if events else None
    return (last.seq or 0, last.kind in ENDING) if last else (0, False)


def _true_cost(price: Price, answer: dict[str, Any], most: float) -> float:
    """Cost in USD by the provider's token counts; `most` where the provider sent none."""
    if not answer.get("metered"):
        return most
    usage = Usage(
        prompt_tokens=max(0, int(answer.get("prompt_tokens") or 0)),
        completion_tokens=max(0, int(answer.get("completion_tokens") or 0)),
    )
    return price.of(usage)


def _size(value: Any) -> int:
    """Size of a JSON value: bytes of all texts and keys in it, and one for every other leaf."""
    total, left = 0, [value]
    while left:
        match left.pop():
            case str() as text:
                total += len(text.encode(errors="replace"))
            case dict() as fields:
                left += [*fields.keys(), *fields.values()]
            case list() as values:
                left += values
            case _:
                total += 1
    return total


def _refused(host: str, request: HomeRequest, why: str) -> Refused:
    return Refused.of(
        "home_request.refused",
        f"{host} requested an API call for run {request.run_id} and was refused: {why}.",
        "Nothing was sent to a provider. If you did not start this, check that server.",
    )
