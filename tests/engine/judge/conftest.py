"""Fixtures: a run folder, a judge process that calls a scripted provider, and groups to judge.

The process is shared by all tests (importing litellm takes seconds) unless a test sets
`own_process`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from engine.judge.prompting.rubric import parse_rubric
from engine.judge.providers.access import Access, start_worker
from engine.judge.providers.client import Provider, price_of
from engine.judge.providers.ledger import Ledger
from engine.judge.ruler import Ruler
from engine.protocol.config.project import JudgeConfig, ProjectConfig
from engine.protocol.records.conversations import Message
from engine.protocol.records.runs import RunSpec, Trajectory
from engine.storage.run_folder.run import Run
from tests.engine.judge.scripted import Script, provider

T = TypeVar("T")
RUBRIC = "The one that is worth more is better."
KEYS = {"openai": "sk-secret-123"}


class JudgeProcess:
    """Event loop and judge process shared by the session."""

    def __init__(self, log: Path) -> None:
        self.runner = asyncio.Runner()
        self._child = self.runner.run(start_worker("judge", log))

    async def provider(self, config: JudgeConfig) -> Provider:
        await self._child.ask("keys", keys=KEYS)
        prices = {model: await price_of(self._child, config, model) for model in config.models}
        return Provider(self._child, config, prices)

    def close(self) -> None:
        self.runner.run(self._child.close())
        self.runner.close()


class JudgeHarness:
    """Run folder, scripted provider and rulers for one test of the judge."""

    def __init__(self, folder: Path, script: Script, judge_process: JudgeProcess) -> None:
        self.folder = folder
        self.script = script
        self.own_process = False
        self._judge_process = judge_process

    def config(self, **settings: Any) -> JudgeConfig:
        defaults = {"models": ("openai/scripted",), "passes": 1, "retries": 2, "timeout_s": 3}
        server = {"price_prompt": 10.0, "price_completion": 10.0, "base_url": self.script.url}
        return JudgeConfig(enabled=True, **{**defaults, **server, **settings})

    def run(self, work: Callable[[Ruler, Run], Awaitable[T]], **settings: Any) -> T:
        """Run `work` with a ruler over the run of this folder."""

        async def run_work() -> T:
            async with self.session(**settings) as (ruler, run, _):
                return await work(ruler, run)

        return self._judge_process.runner.run(run_work())

    @asynccontextmanager
    async def session(self, **settings: Any) -> AsyncIterator[tuple[Ruler, Run, Provider]]:
        config = self.config(**settings)
        spec = RunSpec(
            id="run",
            name="a run",
            project="p",
            started_at=0,
            config=ProjectConfig(judge=config),
            model_path="",
        )
        self.folder.mkdir(exist_ok=True)
        run = Run(self.folder, spec, lambda tick: None)
        try:
            async with self._judge(config, run) as judge:
                ledger = Ledger(run, judge, config)
                yield Ruler(config, parse_rubric(RUBRIC), ledger, seed=0), run, judge
        finally:
            run.close()

    @asynccontextmanager
    async def _judge(self, config: JudgeConfig, run: Run) -> AsyncIterator[Provider]:
        if not self.own_process:
            yield await self._judge_process.provider(config)
            return
        judge = await Provider.start(config, Access(KEYS), run.log_file)
        try:
            yield judge
        finally:
            await judge.close()


@pytest.fixture(scope="session")
def judge_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeProcess]:
    judge_process = JudgeProcess(tmp_path_factory.mktemp("bench") / "judge.log")
    yield judge_process
    judge_process.close()


@pytest.fixture
def harness(tmp_path: Path, judge_process: JudgeProcess) -> Iterator[JudgeHarness]:
    with provider(Script()) as script:
        yield JudgeHarness(tmp_path / "run", script, judge_process)


def group(*answers: str, group: int = 0) -> list[Trajectory]:
    """Group with one trajectory per answer, all for one scenario."""
    return [
        Trajectory(
            id=f"t{group}-{index}",
            split="train",
            step=1,
            group=group,
            index=index,
            scenario_id="s",
            title="s",
            reward=None,
            awaits_judge=True,
            messages=[
                Message(role="user", content="What is it worth?"),
                Message(role="assistant", content=answer),
            ],
        )
        for index, answer in enumerate(answers)
    ]


def graded_group(*values: float) -> list[Trajectory]:
    """Group whose answers carry the scores that the scripted provider gives."""
    return group(*(f"I say worth={value}" for value in values))
