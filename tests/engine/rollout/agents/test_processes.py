"""Agent processes of a real pool that block, print much, or leave children."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import ConfigError, RolloutError
from engine.rollout.agents import processes
from engine.rollout.agents.processes import AgentPool, AgentResult, Attempt
from tests.support.processes import is_alive

T = TypeVar("T")

BLOCKED = """
import time

async def rollout(scenario, model):
    time.sleep(600)
"""
CHATTY = """
def rollout(scenario, model):
    print("x" * 900_000)
    return 1.0
"""
PARENT = """
import subprocess, time

async def rollout(scenario, model):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(600)
"""


KILLED_ONCE = """
import os, pathlib, signal

if not pathlib.Path("killed").exists():
    pathlib.Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)

def rollout(scenario, model):
    return 1.0
"""
ALWAYS_KILLED = """
import os, signal

os.kill(os.getpid(), signal.SIGKILL)
"""


def make_attempt(text: str = "") -> Attempt:
    return Attempt({"text": text}, "http://127.0.0.1:9/v1", "key", "policy")


def with_pool(
    folder: Path, source: str, work: Callable[[AgentPool], Awaitable[T]], **settings: float
) -> T:
    (folder / "agent.py").write_text(source)
    config = AgentConfig.model_validate({"timeout_s": 1, "workers": 1, **settings})

    async def run() -> T:
        pool = AgentPool(folder, config, folder / "agent.log")
        await pool.start()
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.fixture
def quick_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PING_TIMEOUT_S", 0.5)


def test_blocked_process_is_ended_on_timeout(tmp_path: Path, quick_ping: None) -> None:
    """More data than the pipe holds is in flight when the agent blocks."""

    async def work(pool: AgentPool) -> list[AgentResult | BaseException]:
        rollouts = [pool.run(make_attempt("x" * 500_000)) for _ in range(4)]
        async with asyncio.timeout(60):
            return await asyncio.gather(*rollouts, return_exceptions=True)

    for one in with_pool(tmp_path, BLOCKED, work):
        assert isinstance(one, RolloutError)
        assert one.problem.code == "agent.timeout"


def test_large_results_arrive_complete_for_a_late_reader(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> list[AgentResult]:
        rollouts = [asyncio.ensure_future(pool.run(make_attempt())) for _ in range(6)]
        await asyncio.sleep(0.1)
        time.sleep(0.5)  # noqa: ASYNC251 - the engine is busy with something else
        return await asyncio.gather(*rollouts)

    results = with_pool(tmp_path, CHATTY, work, timeout_s=60)
    assert [len(one.output) for one in results] == [900_001] * 6


def test_children_of_a_blocked_agent_are_ended(tmp_path: Path, quick_ping: None) -> None:
    children: list[psutil.Process] = []

    async def work(pool: AgentPool) -> None:
        rollouts = asyncio.ensure_future(pool.run(make_attempt()))
        host = psutil.Process(pool.pids[0])
        async with asyncio.timeout(10):
            while not host.children():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        children.extend(host.children())
        with pytest.raises(RolloutError):
            await rollouts

    with_pool(tmp_path, PARENT, work)
    assert children
    assert not any(is_alive(child) for child in children)


def test_process_killed_while_loading_is_restarted_once(tmp_path: Path) -> None:
    results = with_pool(tmp_path, KILLED_ONCE, lambda pool: pool.run(make_attempt()), timeout_s=60)
    assert results.parts == {"rules": 1.0}
    with pytest.raises(ConfigError, match="before it could load"):
        with_pool(tmp_path, ALWAYS_KILLED, lambda pool: pool.run(make_attempt()))


def test_command_gets_the_endpoint_of_both_apis(tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(
        'test "$OPENAI_BASE_URL $OPENAI_API_KEY $OPENAI_MODEL" = "http://127.0.0.1:9/v1 key policy"'
        ' && test "$ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY $ANTHROPIC_MODEL" = '
        '"http://127.0.0.1:9 key policy" && echo 0.5'
    )

    async def run() -> AgentResult:
        config = AgentConfig(command="sh agent.sh")
        pool = AgentPool(tmp_path, config, tmp_path / "agent.log")
        await pool.start()
        try:
            return await pool.run(make_attempt())
        finally:
            await pool.close()

    assert asyncio.run(run()).parts == {"rules": 0.5}
