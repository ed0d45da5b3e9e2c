"""Children of the engine: none outlives it, and none gets its secrets."""

import asyncio
import os
import time
from pathlib import Path

import psutil
import pytest

from engine.judge.providers.access import start_worker
from engine.policy.vllm import process as vllm
from tests.engine_http.conftest import AGENT, make_project, start_engine, stop_engine, until
from tests.support.processes import is_alive

FORKS = """
import os
if scenario["id"] == "s1" and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "98765"])
    os._exit(0)
"""
HANGS = "\nif scenario['id'] == 's1': __import__('re').match(r'(a+)+$', 'a' * 60 + 'b')"
"""Holds the GIL: no other thread of the process runs any more."""


def with_body(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return AGENT.replace("    return {", lines + "    return {")


def sleepers() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "98765"]]


@pytest.mark.parametrize("then", ["", HANGS], ids=["agent goes on", "agent hangs"])
def test_daemons_of_agent_end_with_killed_engine(
    workspace: Path, tiny_model: Path, then: str
) -> None:
    engine = start_engine(workspace)
    try:
        project = make_project(workspace / "forks", tiny_model, with_body(FORKS + then))
        engine.train(project, **{"train.steps": 50, "agent.timeout_s": 100})
        until(lambda: bool(sleepers()), 60)
        time.sleep(0.5)
        children = psutil.Process(engine.process.pid).children(recursive=True)
    finally:
        engine.kill()
    started_at = time.monotonic()
    until(lambda: not sleepers(), 5)
    seconds = time.monotonic() - started_at
    until(lambda: not any(is_alive(one) for one in children), 5)
    print(f"gone {seconds:.2f} s after the engine; so were {len(children)} others")


SECRETS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "HF_TOKEN", "HF_HUB_TOKEN",
    "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_OWN_SETTING",
)  # fmt: skip


def environ_of(pid: int, timeout_s: float = 10) -> dict[str, str]:
    """Variables of a process, empty for one that has ended.

    The kernel shows none while the process executes a new program, so they are read until they
    are there.
    """
    deadline = time.monotonic() + timeout_s
    try:
        while not (variables := psutil.Process(pid).environ()) and time.monotonic() < deadline:
            time.sleep(0.01)
    except psutil.NoSuchProcess:
        return {}
    return variables


def test_children_get_no_secret_environment_variables(
    workspace: Path,
    tiny_model: Path,
    tmp_path: Path,
    real_cache: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check every kind of child that needs no GPU, with variables as shown by the kernel."""
    for name in SECRETS:
        monkeypatch.setenv(name, "sesame")
    engine = start_engine(workspace)
    environments: dict[str, dict[str, str]] = {"vLLM": vllm._environment({})}
    try:
        run = engine.train(make_project(workspace / "letters", tiny_model), **{"train.steps": 99})
        engine.wait_for(run, "step.started")
        kinds = {"agent": "host.py", "policy": "policy.torch", "renderer": "rendering.worker"}
        for kind, word in kinds.items():
            for number, child in enumerate(engine.child_processes(word)):
                if variables := environ_of(child.pid):
                    environments[f"{kind} {number}"] = variables
    finally:
        stop_engine(engine)

    async def judge() -> dict[str, str]:
        child = await start_worker("judge", tmp_path / "log")
        try:
            return environ_of(child.pid)
        finally:
            await child.kill()

    if os.geteuid() == 0:  # it hides from other processes of its user
        environments["judge"] = asyncio.run(judge())
    assert len(environments) >= 5, environments.keys()  # the agent's guardian is a separate process
    for kind, environ in environments.items():
        assert "sesame" not in environ.values(), kind
        assert "XDG_RUNTIME_DIR" not in environ, kind
        assert environ["PATH"], kind
    print(f"looked at {', '.join(environments)}")
