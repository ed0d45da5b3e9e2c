"""Fixtures: one real vLLM server on the CPU with the starter model, shared by this folder."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from engine.models.registry import find_model
from engine.policy.base import PolicyInfo, PolicySpec
from engine.policy.vllm.policy import VllmPolicy
from engine.policy.vllm.process import ServerPlace
from engine.policy.worker import TorchPolicy
from engine.protocol.config.project import ModelConfig
from engine.protocol.problems import Problem

T = TypeVar("T")
STARTER = "smollm2-135m-instruct"
ROWS = 16


@dataclass
class VllmHarness:
    """Loaded vLLM policy and access to its event loop."""

    policy: VllmPolicy
    info: PolicyInfo
    loop: asyncio.AbstractEventLoop
    log: Path
    restarts: list[Problem]

    def run(self, work: Coroutine[Any, Any, T], patience_s: float = 240) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(patience_s)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmHarness]:
    log = tmp_path_factory.mktemp("vllm") / "run.log"
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    restarts: list[Problem] = []

    async def start_policy() -> tuple[VllmPolicy, PolicyInfo]:
        policy = VllmPolicy(await TorchPolicy.start(log, STARTER), log, ServerPlace(rows=ROWS))

        async def record_restart(problem: Problem, count: int) -> None:
            restarts.append(problem)

        policy.on_restart = record_restart
        model = ModelConfig(name=STARTER, dtype="float32", rank=8, max_context=256)
        info = await policy.load(
            PolicySpec(
                model_path=str(find_model(STARTER)), model=model, seed=1,
             batch_tokens=1024,
            )
        )  # fmt: skip
        await policy.publish(0)
        return policy, info

    async def stop_policy(policy: VllmPolicy) -> None:
        pids = policy.pids
        await policy.close()
        remaining = [pid for pid in pids if psutil.pid_exists(pid)]
        assert not remaining, f"processes left running: {remaining}"

    def wait(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(240)

    try:
        policy, info = wait(start_policy())
        try:
            yield VllmHarness(policy, info, loop, log, restarts)
        finally:
            wait(stop_policy(policy))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def may_stay(request: pytest.FixtureRequest) -> Callable[[psutil.Process], bool]:
    """Allow the vLLM server's processes, also after a restart."""
    harness: VllmHarness = request.getfixturevalue("harness")
    return lambda process: process.pid in harness.policy.pids
