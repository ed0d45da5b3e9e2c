"""Runs the project's agent against the model's endpoint, in the process of the evaluation."""

import asyncio
import json
import tempfile
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig

from .host_agent import AgentCode
from .taskset import RESULT, SETTINGS

PROJECT = Path(__file__).resolve().parent / "project"
loaded: list[AgentCode] = []
"""The agent's code, imported once."""


def agent_code() -> AgentCode:
    if not loaded:
        file = "-" if SETTINGS["command"] else SETTINGS["file"]
        code = AgentCode(str(PROJECT), file, SETTINGS["command"] or "-", SETTINGS["output_bytes"])
        code.load()
        loaded.append(code)
    return loaded[0]


class ProjectHarnessConfig(vf.HarnessConfig):
    pass


class ProjectHarness(vf.Harness[ProjectHarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        message = {
            "scenario": data.scenario,
            "base_url": endpoint,
            "api_key": secret,
            "model": ctx.model,
        }
        code = await asyncio.to_thread(agent_code)
        with tempfile.TemporaryDirectory(prefix="agent-") as scratch:
            kind, value = await code.answer(message, scratch)
        if kind == "error":
            raise vf.HarnessError(f"{value['message']} {value.get('detail', '')}".strip())
        trace.info[RESULT] = {"parts": value["parts"], "metrics": value["metrics"]}
        return vf.ProgramResult(exit_code=0, stdout=json.dumps(trace.info[RESULT]), stderr="")


class ProjectEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=SubprocessConfig())


class ProjectEnv(vf.Env[ProjectEnvConfig]):
    async def run(self, task, agents):
        await agents.agent.run(task)
