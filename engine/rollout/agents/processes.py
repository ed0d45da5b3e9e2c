"""Agent processes: the user's code in the user's interpreter, many rollouts in each.

Rollouts fail separately. If a process with several rollouts dies or blocks, each of them is
repeated in a process of its own, which identifies the cause.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from engine.environments.agent_packages import packages_python
from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import AtelierError, ConfigError, RolloutError
from engine.rollout.gateway.messages import first_invalid_field
from engine.runtime.child import LINE_LIMIT, Child, ChildDied
from engine.runtime.timeouts import Away, never, run_with_timeout

HOST = Path(__file__).parent / "host.py"
LOAD_TIMEOUT_S = 120.0
LOAD_CHANCES = 3
PING_TIMEOUT_S = 5.0
ISOLATED_AT_ONCE = 2


class Attempt(NamedTuple):
    """Arguments for one run of the agent: the scenario, and the endpoint of its model."""

    scenario: dict[str, Any]
    base_url: str
    api_key: str
    model: str


MOST_REWARD = 1e6
"""Largest absolute value of a reward or part: sums and squares of rewards stay finite."""
MOST_METRIC = 1e30
RewardPart = Annotated[float, Field(ge=-MOST_REWARD, le=MOST_REWARD, allow_inf_nan=False)]
Metric = Annotated[float, Field(ge=-MOST_METRIC, le=MOST_METRIC, allow_inf_nan=False)]
MetricName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
LINE_ROOM = 2**20
"""Bytes allowed for a result in addition to its captured output."""


class SentResult(BaseModel):
    """Result of a rollout, as the agent's process sends it."""

    parts: Annotated[dict[MetricName, RewardPart], Field(max_length=100)]
    metrics: Annotated[dict[MetricName, Metric], Field(max_length=1_000)]
    turns: Annotated[list[RewardPart], Field(max_length=100_000)]
    output: str


class AgentResult(NamedTuple):
    parts: dict[str, float]
    metrics: dict[str, float]
    output: str
    turns: Sequence[float] = ()
    """Reward of each completion, in order; empty if the agent returned none."""


class Agents(Protocol):
    """Interface for running the agent; `AgentPool` implements it."""

    async def run(self, attempt: Attempt, away: Away = never) -> AgentResult:
        """Run one rollout of the agent. `away` returns the total seconds in which the policy was
        unavailable so far; time that it adds meanwhile does not count against the timeout. Raises
        RolloutError with the reason if there is no result."""
        ...


@dataclass
class Worker:
    child: Child
    running: int = 0
    spoilt: bool = False
    """Whether the process has a rollout that could not be ended; it is replaced once it is idle."""


@dataclass
class AgentPool:
    """Pool of agent processes: start it, `run` rollouts concurrently, close it."""

    project: Path
    config: AgentConfig
    log: Path
    _python: str = ""
    _workers: list[Worker] = field(default_factory=list)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.config.concurrency)
        self._isolation = asyncio.Semaphore(ISOLATED_AT_ONCE)

    @property
    def pids(self) -> list[int]:
        return [worker.child.pid for worker in self._workers]

    async def start(self) -> None:
        """Start the processes. Raises ConfigError if the agent or one of its packages is missing,
        or if its import fails."""
        self._python = await packages_python(self.project, self.config)
        for _ in range(self.config.workers):
            self._workers.append(await self._spawn())

    async def close(self) -> None:
        workers, self._workers = self._workers, []
        await asyncio.gather(*(self._end(worker.child) for worker in workers))

    async def run(self, attempt: Attempt, away: Away = never) -> AgentResult:
        """Run one rollout of the agent in a free process; waits for one. `away` returns the total
        seconds in which the policy was unavailable so far; time that it adds meanwhile does not
        count against the timeout. Raises RolloutError with the reason if there is no result."""
        async with self._places:
            worker = await self._worker()
            try:
                return await self._run_in(worker, attempt, away)
            except ChildDied:
                pass  # it or a neighbour killed the process: find out alone
        async with self._isolation:
            return await self._run_alone(attempt, away)

    async def _run_alone(self, attempt: Attempt, away: Away) -> AgentResult:
        worker = await self._spawn()
        try:
            return await self._run_in(worker, attempt, away, alone=True)
        except ChildDied as error:
            raise RolloutError(
                error.problem.model_copy(
                    update={
                        "code": "agent.died",
                        "message": f"The agent ended its own process. {error.problem.message}",
                    }
                )
            ) from error
        finally:
            await self._end(worker.child)

    async def _run_in(
        self, worker: Worker, attempt: Attempt, away: Away, alone: bool = False
    ) -> AgentResult:
        worker.running += 1
        try:
            return await self._ask(worker, attempt, away)
        except TimeoutError:
            late = RolloutError.of(
                "agent.timeout",
                f"The agent timed out after {self.config.timeout_s:g} s.",
                "Raise agent.timeout_s, or look for a call without a timeout.",
            )
            if not await self._answers(worker) and not alone:
                raise ChildDied(late.problem) from None  # it, or a neighbour, blocks the process
            raise late from None
        except ChildDied:
            raise
        except AtelierError as error:
            raise RolloutError(error.problem) from error
        finally:
            worker.running -= 1

    async def _ask(self, worker: Worker, attempt: Attempt, away: Away) -> AgentResult:
        """Run one rollout in a process. Raises TimeoutError, AtelierError."""
        call = worker.child.ask("run", **attempt._asdict())
        return self._result(await run_with_timeout(self.config.timeout_s, away, call))

    def _result(self, answer: dict[str, Any]) -> AgentResult:
        """Check and convert a result, since agent code can write to the socket. Raises RolloutError
        if it is invalid."""
        try:
            sent = SentResult.model_validate(answer)
        except ValidationError as error:
            raise RolloutError.of(
                "agent.bad_result",
                f"The agent's result cannot be used: {first_invalid_field(error)[:300]}.",
                'Return {"reward": 1.0, "metrics": {...}} with finite numbers; rewards lie between '
                f"-{MOST_REWARD:g} and {MOST_REWARD:g}.",
            ) from error
        output = sent.output[: self.config.max_output_bytes]
        return AgentResult(sent.parts, sent.metrics, output, sent.turns)

    async def _answers(self, worker: Worker) -> bool:
        """Whether a process responds after a timeout; one that does not is killed. Either way it
        gets no further rollouts."""
        worker.spoilt = True
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await worker.child.ask("ping")
            return True
        except TimeoutError:
            await worker.child.kill()
        except ChildDied:
            return False
        return False

    async def _worker(self) -> Worker:
        """Running process with the fewest rollouts; replaces dead and spoilt ones."""
        async with self._starting:
            for place, worker in enumerate(self._workers):
                if not worker.child.alive or (worker.spoilt and not worker.running):
                    await self._end(worker.child)
                    self._workers[place] = await self._spawn()
            return min(self._workers, key=lambda worker: (worker.spoilt, worker.running))

    async def _end(self, child: Child) -> None:
        await child.close()

    async def _spawn(self, verifies: bool = False) -> Worker:
        """Start a process and load the agent, or with `verifies` the reward functions. Retries if
        the process was killed while loading, but not if it exited by itself. Raises ConfigError."""
        for chances in reversed(range(LOAD_CHANCES)):
            child = await self._launch(verifies)
            try:
                async with asyncio.timeout(LOAD_TIMEOUT_S):
                    await child.ask("load")
                return Worker(child)
            except TimeoutError:
                await child.kill()
                raise ConfigError.of(
                    "agent.does_not_import",
                    f"{self.config.file} takes more than {LOAD_TIMEOUT_S:g} s to import.",
                    "Move slow work from import time into rollout().",
                    where=self.config.file,
                ) from None
            except AtelierError as error:
                await self._end(child)
                if not (chances and child.process.returncode == -signal.SIGKILL):
                    raise self._load_problem(error, child) from error
            except asyncio.CancelledError:
                await asyncio.shield(child.kill())
                raise
        raise AssertionError("the last chance ends in one way or the other")

    async def _launch(self, verifies: bool = False) -> Child:
        """Start a process; `verifies` has an effect in a sandbox only."""
        config = self.config
        argv = [
            config.python or self._python or sys.executable,
            str(HOST),
            str(self.project),
            "-" if config.command else config.file,
            config.command or "-",
            str(config.max_output_bytes),
        ]
        environment = {
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",  # it would send attempts to OpenAI
        }
        if self._python:  # the `python` of a command, too
            path = os.environ.get("PATH", os.defpath)
            environment["PATH"] = f"{Path(self._python).parent}{os.pathsep}{path}"
        escaped = 6 * config.max_output_bytes  # a character may take as much in JSON
        return await Child.spawn(
            "agent",
            argv,
            cwd=self.project,
            log=self.log,
            environment=environment,
            line_limit=min(LINE_LIMIT, escaped + LINE_ROOM),
        )

    def _load_problem(self, error: AtelierError, child: Child) -> ConfigError:
        """Error of a process that ended while it loaded the code."""
        if error.problem.code != "agent.died":
            return ConfigError(error.problem)
        log = self.log
        return ConfigError.of(
            "agent.not_started",
            "The agent's process ended before it could load the agent.",
            "Check agent.python and the log.",
            where=str(log),
            detail=log.read_text(errors="replace")[-4000:] if log.exists() else "",
        )
