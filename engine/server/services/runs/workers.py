"""Worker processes of one run: policy, agents, judge. They are closed when the block ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from engine.integrations.scripts.session import ScriptSession
from engine.models.registry import model_of
from engine.policy.base import Policy
from engine.policy.start import start_policy, without_sampler
from engine.policy.tinker.cluster import ClusterAccess
from engine.protocol.config.project import ProjectConfig
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.images import images_of_run
from engine.rollout.rendering.chat import ChatFormat, open_chat
from engine.rollout.rollout import Stage
from engine.rollout.sandbox.pool import agent_pool
from engine.runtime.child import reap_orphans
from engine.runtime.closing import closing
from engine.server.services.child_processes import ChildProcesses
from engine.server.services.credentials import Credentials
from engine.server.services.judges import judging
from engine.storage.run_folder.run import Run


@dataclass
class RunResources:
    """Services of the engine that all its runs share."""

    gateway: Gateway
    base_url: str
    """Address of the gateway, for agents."""
    credentials: Credentials
    children: ChildProcesses
    cluster_access: Callable[[ProjectConfig], Awaitable[ClusterAccess | None]]
    """Gives access to the cluster that settings name."""
    script_sessions: dict[str, ScriptSession] = field(default_factory=dict)
    """Sessions of the external scripts that train, by run id."""


@contextlib.asynccontextmanager
async def workers(run: Run, resources: RunResources) -> AsyncIterator[tuple[Policy, Stage]]:
    """Context manager that starts policy, agent processes and judges of one run and yields (policy,
    stage for rollouts); they end with the block."""
    async with policy_of(run, resources) as (policy, chat):
        async with closing(agent_pool(run.project, run.config.agent, run.log_file)) as pool:
            await pool.start()
            access = resources.credentials.access(run.spec)
            async with (
                images_of_run(run, chat) as images,
                judging(run, access, policy, images) as judge,
            ):
                where = (resources.gateway, resources.base_url, pool)
                yield policy, Stage(run.config, chat, policy, *where, judge, images=images)


@contextlib.asynccontextmanager
async def policy_of(
    run: Run, resources: RunResources, sampling: bool = True
) -> AsyncIterator[tuple[Policy, ChatFormat]]:
    """Context manager that starts a run's policy and yields it with the chat format of its model.
    With `sampling` False, the policy has a trainer but no separate sampler."""
    model = await asyncio.to_thread(model_of, run.spec)
    config = run.config if sampling else without_sampler(run.config)
    try:
        async with open_chat(model, config.model) as chat:
            cluster = await resources.cluster_access(config)
            policy = await start_policy(config, model, run.log_file, config.model.name, cluster)
            policy.on_restart = run.sampler_restarted
            try:
                yield policy, chat
            finally:
                await asyncio.shield(policy.close())
    finally:
        # One run at a time: whatever child is left now was orphaned by a worker that died.
        await asyncio.to_thread(reap_orphans, resources.children.pids)
