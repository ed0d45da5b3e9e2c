"""Start of the policy that a project's [backend] selects, on its GPUs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from engine.hardware.devices import cards_of, has_own_sampler_card
from engine.hardware.memory_plan import vram_plan
from engine.policy import fork_server
from engine.policy.base import Policy, PolicyInfo, PolicySpec
from engine.policy.data_parallel import ParallelPolicy
from engine.policy.tinker.cluster import ClusterAccess
from engine.policy.tinker.policy import TinkerPolicy
from engine.policy.vllm.policy import VllmPolicy
from engine.policy.vllm.process import ServerPlace
from engine.policy.worker import TORCH, TorchPolicy, unsloth_program
from engine.protocol.config.project import BackendConfig, ModelConfig, ProjectConfig
from engine.protocol.events.run import PolicyLoaded
from engine.protocol.problems import ConfigError
from engine.protocol.records.machine.hardware import Card
from engine.runtime.child import start_program

MOST_ROWS = 256
"""Maximum number of concurrent sequences of the vLLM server."""


async def start_policy(
    config: ProjectConfig,
    model: Path,
    log: Path,
    base_name: str,
    cluster: ClusterAccess | None = None,
) -> Policy:
    """Start the processes of the policy that a project's [backend] names, without loading weights,
    or connect to a `cluster`. `base_name` is the name of the base model in saved adapters. Raises
    ConfigError where there are too few GPUs, PolicyError, EnvironmentMissing."""
    if cluster is not None:
        return await TinkerPolicy.start(log, base_name, cluster)
    backend = config.backend
    cards = await asyncio.to_thread(cards_of, backend)
    _refuse_too_few(backend, cards)
    program = TORCH if backend.trainer == "torch" else await unsloth_program(bool(cards))
    trainer: Policy
    if backend.processes > 1:
        count = backend.processes
        trainer = await ParallelPolicy.start(log, base_name, count, cards, program)
    else:
        start = fork_server.launcher() if program == TORCH and not cards else start_program
        trainer = await TorchPolicy.start(log, base_name, program=program, start=start)
    if backend.sampler == "torch":
        return trainer
    return VllmPolicy(trainer, log, await asyncio.to_thread(server_place, config, model, cards))


def in_one_process(config: ProjectConfig) -> ProjectConfig:
    """Settings changed to load the same weights in one torch process of this machine, without
    vLLM."""
    update = {"sampler": "torch", "processes": 1, "cluster": ""}
    backend = config.backend.model_copy(update=update)
    return config.model_copy(update={"backend": backend})


def without_sampler(config: ProjectConfig) -> ProjectConfig:
    """Settings changed to start the same trainers without a vLLM server."""
    backend = config.backend.model_copy(update={"sampler": "torch"})
    return config.model_copy(update={"backend": backend})


def policy_spec(config: ProjectConfig, model: Path, shape: ModelConfig, seed: int) -> PolicySpec:
    """Specification of a policy: the model in this folder with an adapter of this shape. Raises
    ConfigError if the backend cannot apply the adapter."""
    backend = config.backend
    if shape.adapt_experts and (backend.trainer, backend.sampler) != ("torch", "torch"):
        raise ConfigError.of(
            "backend.no_experts",
            "The adapter covers the experts of a mixture, which Unsloth and vLLM cannot apply.",
            "Set backend.trainer and backend.sampler to torch.",
            where="backend",
        )
    return PolicySpec(
        model_path=str(model),
        model=shape,
        seed=seed,
        batch_tokens=config.train.batch_tokens,
        weights=backend.weights,
        recompute=backend.recompute,
    )


def loaded(info: PolicyInfo) -> PolicyLoaded:
    """Event that describes a loaded policy."""
    fields = PolicyLoaded.model_fields.keys() & PolicyInfo.model_fields.keys()
    return PolicyLoaded(**info.model_dump(include=set(fields)))


def server_place(config: ProjectConfig, model: Path, cards: Sequence[Card]) -> ServerPlace:
    """Place of a vLLM server: its GPU, the share of GPU memory that the memory forecast leaves to
    it, and limits."""
    rows = min(config.agent.concurrency, MOST_ROWS)
    adapters = 2 + config.train.staleness
    plan = vram_plan(config, model, cards)
    if plan is None:
        return ServerPlace(rows=rows, adapters=adapters, cuda=bool(cards))
    apart = has_own_sampler_card(config.backend, cards)
    return ServerPlace(
        rows=max(1, min(rows, plan.rows)),
        adapters=adapters,
        cuda=True,
        card=cards[-1 if apart else 0].uuid,
        memory_share=plan.memory_share,
        sleep=plan.sleep,
        quantization="" if config.backend.weights == "full" else "bitsandbytes",
    )


def _refuse_too_few(backend: BackendConfig, cards: Sequence[Card]) -> None:
    if cards and len(cards) < backend.processes:
        raise ConfigError.of(
            "backend.too_few_cards",
            f"backend.processes is {backend.processes}, but CUDA shows {len(cards)} "
            f"GPU{'s' * (len(cards) != 1)}.",
            f"Set backend.processes to {len(cards)} or fewer.",
            where="backend.processes",
        )
