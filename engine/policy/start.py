"""The policy that a project's [backend] asks for."""

from pathlib import Path

from engine.policy.base import Policy
from engine.policy.parallel import ParallelPolicy
from engine.policy.vllm.policy import VllmPolicy
from engine.policy.worker import TorchPolicy
from engine.protocol.config import ProjectConfig

MOST_ROWS = 256
"""Sequences that the server works on at once."""


async def start_policy(config: ProjectConfig, log: Path, base_name: str) -> Policy:
    """Its processes are started and empty; `base_name` is written into saved adapters. Raises
    PolicyError, EnvironmentMissing."""
    trainer: Policy
    if config.backend.processes > 1:
        trainer = await ParallelPolicy.start(log, base_name, config.backend.processes)
    else:
        trainer = await TorchPolicy.start(log, base_name)
    if config.backend.sampler == "torch":
        return trainer
    return VllmPolicy(trainer, log, min(config.agent.concurrency, MOST_ROWS), config.backend.sleep)
