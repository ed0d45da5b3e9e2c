"""The policy that a project's [backend] asks for."""

from pathlib import Path

from engine.policy.base import Policy
from engine.policy.vllm.policy import VllmPolicy
from engine.policy.worker import TorchPolicy
from engine.protocol.config import AgentConfig, BackendConfig


async def start_policy(
    backend: BackendConfig, agent: AgentConfig, log: Path, base_name: str
) -> Policy:
    """Its processes are started and empty; `base_name` is written into saved adapters. Raises
    PolicyError, EnvironmentMissing."""
    trainer = await TorchPolicy.start(log, base_name)
    if backend.sampler == "torch":
        return trainer
    rows = agent.concurrency * agent.workers
    return VllmPolicy(trainer, log, min(rows, 256), backend.sleep)
