"""The processes of one run: policy, agents, judge. They are gone when the block ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field

from engine.integrations.scripts.session import Desk
from engine.judge.providers.access import Access
from engine.models.registry import model_of
from engine.policy.base import Policy
from engine.policy.start import start_policy, without_sampler
from engine.protocol.records.runs import RunSpec
from engine.rollout.agents.processes import AgentPool
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.rendering.chat import ChatFormat, open_chat
from engine.rollout.rollout import Stage
from engine.runtime.child import reap_orphans
from engine.server.services.judges import judging
from engine.storage.run_folder.run import Run


@dataclass
class House:
    """What the runs of an engine share."""

    gateway: Gateway
    access: Callable[[RunSpec], Access]
    """To providers, of a run."""
    spared: Callable[[], Collection[int]]
    """Children that are no run's."""
    base_url: str = ""
    desks: dict[str, Desk] = field(default_factory=dict)
    """Of the scripts that train, by their runs."""


@contextlib.asynccontextmanager
async def workers(run: Run, house: House) -> AsyncIterator[tuple[Policy, Stage]]:
    """Policy and agent processes of one run, and its judges."""
    async with policy_of(run, house) as (policy, chat):
        pool = AgentPool(run.project, run.config.agent, run.log_file)
        try:
            await pool.start()
            async with judging(run, house.access(run.spec), policy) as judge:
                stage = Stage(run.config, chat, policy, house.gateway, house.base_url, pool, judge)
                yield policy, stage
        finally:
            await asyncio.shield(pool.close())


@contextlib.asynccontextmanager
async def policy_of(
    run: Run, house: House, sampling: bool = True
) -> AsyncIterator[tuple[Policy, ChatFormat]]:
    """The policy's processes, and what speaks its model's language. Where nothing is sampled, the
    trainer alone."""
    model = await asyncio.to_thread(model_of, run.spec)
    config = run.config if sampling else without_sampler(run.config)
    try:
        async with open_chat(model) as chat:
            policy = await start_policy(config, model, run.log_file, config.model.name)
            policy.on_restart = run.sampler_restarted
            try:
                yield policy, chat
            finally:
                await asyncio.shield(policy.close())
    finally:
        # One run at a time: whatever child is left now was orphaned by a worker that died.
        await asyncio.to_thread(reap_orphans, house.spared)
