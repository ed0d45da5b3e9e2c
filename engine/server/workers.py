"""The processes of one run: policy, agents, judge. They are gone when the block ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.child import reap_orphans
from engine.judge.ledger import Ledger
from engine.judge.lessons import lessons_of
from engine.judge.local import LocalJudge
from engine.judge.panel import Panel
from engine.judge.provider import Provider
from engine.judge.rubric import parse_rubric
from engine.judge.ruler import Ruler
from engine.policy.worker import TorchPolicy
from engine.rollout.agents import AgentPool
from engine.rollout.attempt import Stage
from engine.rollout.chat import ChatFormat
from engine.rollout.gateway import Gateway
from engine.run import Run


@dataclass
class House:
    """What the runs of an engine share."""

    gateway: Gateway
    keys: Mapping[str, str]
    """API keys by provider."""
    spared: Callable[[], Collection[int]]
    """Children that are no run's."""
    base_url: str = ""


@contextlib.asynccontextmanager
async def workers(run: Run, house: House) -> AsyncIterator[tuple[TorchPolicy, Stage]]:
    """Policy and agent processes of one run, and its judges."""
    chat = await asyncio.to_thread(ChatFormat, Path(run.spec.model_path))
    pool = AgentPool(run.project, run.config.agent, run.log_file)
    policy = await TorchPolicy.start(run.log_file, run.config.model.name)
    try:
        await pool.start()
        async with _judging(run, policy, house.keys) as judge:
            yield (
                policy,
                Stage(run.config, chat, policy, house.gateway, house.base_url, pool, judge),
            )
    finally:
        await asyncio.shield(asyncio.gather(pool.close(), policy.close()))
        # One run at a time: whatever child is left now was orphaned by a worker that died.
        await asyncio.to_thread(reap_orphans, house.spared())


@contextlib.asynccontextmanager
async def _judging(
    run: Run, policy: TorchPolicy, keys: Mapping[str, str]
) -> AsyncIterator[Panel | None]:
    judge = run.config.judge
    if not judge.enabled:
        yield None
        return
    local = LocalJudge(policy) if judge.local else None
    if not judge.models:
        yield Panel(run, None, local)
        return
    words = f"Starting the judge ({', '.join(judge.models)}); its environment is installed once."
    await run.log("info", "judge", words)
    provider = await Provider.start(judge, keys, run.log_file)
    try:
        ledger = Ledger(run, provider, judge)
        rubric, seed = parse_rubric(run.spec.rubric), run.config.train.seed
        ruler = Ruler(
            judge, rubric, ledger, seed, lambda: lessons_of(run), lambda: run.orders.rubric
        )
        yield Panel(run, ruler, local)
    finally:
        await asyncio.shield(provider.close())
