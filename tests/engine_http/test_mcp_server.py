"""The MCP server for coding agents, driven by the SDK's own client over a real engine."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from engine.integrations.mcp_server.limits import Limits, check_keys
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import Refused
from engine.runtime.paths import ROOT
from tests.engine_http.conftest import Engine, make_project

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def project(engine: Engine, tiny_model: Path, tmp_path: Path) -> Path:
    folder = make_project(engine.workspace / f"driven-{tmp_path.name}", tiny_model)
    (folder / "rubric.md").write_text("Answer briefly.\n")
    return folder


def contents(project: Path) -> dict[Path, bytes]:
    """Files of a project, apart from the engine's record of the rubric's versions."""
    files = [file for file in project.rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in files if file.name != "rubric.versions.jsonl"}


class Agent:
    """Coding agent that calls tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Value of a tool's answer."""
        answer = await self.client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content
        value = answer.structured_content
        assert value is not None
        return value["result"] if value.keys() == {"result"} else value

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Text of the error that a tool answers."""
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error, answer
        return str(answer.content[0].text)  # type: ignore[union-attr]


@asynccontextmanager
async def coding_agent(engine: Engine, *options: str) -> AsyncIterator[Agent]:
    command = ["-m", "engine", "mcp-server", "--workspace", str(engine.workspace), *options]
    parameters = StdioServerParameters(
        command=sys.executable, args=command, cwd=ROOT, env=dict(os.environ)
    )
    async with Client(stdio_client(parameters)) as client:
        yield Agent(client)


def test_agent_drives_baseline_and_run_within_its_limits(engine: Engine, project: Path) -> None:
    async def drive() -> None:
        limits = ("--runs", "2", "--steps", "3", "--edit")
        async with coding_agent(engine, *limits) as agent:
            known = {one["path"]: one for one in await agent.call("list_projects")}
            assert known[str(project)]["problems"] == []

            baseline = await agent.call("start_baseline", project=str(project))
            done = await agent.call("wait_for_run", run=baseline["id"], seconds=120)
            assert (done["kind"], done["state"]) == ("baseline", "finished")

            words = await agent.refused(
                "start_run", project=str(project), steps=4, values={"train.lr": 0.01}
            )
            assert "4 steps are asked for; 3 of 3 are left." in words
            values = {"train.lr": 0.01, "train.validate_every": 0}
            started = await agent.call("start_run", project=str(project), steps=2, values=values)
            run = started["id"]
            done = await agent.call("wait_for_run", run=run, seconds=120)
            assert (done["state"], done["step"], len(done["rewards"])) == ("finished", 2, 2)
            assert done["settings"]["train.lr"] == 0.01
            metrics = await agent.call("get_metrics", run=run, names=["loss", "time_s"])
            assert [row["step"] for row in metrics["steps"]] == [1, 2]
            assert "time_s/step" in metrics["steps"][0]
            assert not any(name.startswith("tokens") for name in metrics["steps"][0])

            page = await agent.call("list_trajectories", run=run, sort="reward", limit=3)
            assert len(page["trajectories"]) == 3 < page["total"]
            one = page["trajectories"][0]["id"]
            trajectory = await agent.call("get_trajectory", run=run, trajectory=one)
            assert trajectory["messages"]
            assert "branches" not in trajectory

            words = await agent.refused("start_baseline", project=str(project))
            assert "2 have been started" in words
            runs = await agent.call("list_runs", project=str(project))
            assert [one["id"] for one in runs] == [run, baseline["id"]]

            changed = await agent.call("set_settings", project=str(project), values=values)
            assert "+lr = 0.01" in changed["diff"]
            saved = await agent.call("set_rubric", project=str(project), rubric="Be brief.\n")
            assert "+Be brief." in saved["diff"]
            assert (project / "rubric.md").read_text() == "Be brief.\n"

    asyncio.run(drive())


def test_without_permission_nothing_is_started_or_written(engine: Engine, project: Path) -> None:
    before = contents(project)

    async def drive() -> None:
        async with coding_agent(engine) as agent:
            tools = (await agent.client.list_tools()).tools
            writing = {one.name for one in tools if not one.annotations.read_only_hint}  # type: ignore[union-attr]
            assert writing == {
                "start_baseline", "start_run", "stop_run", "set_settings", "set_rubric",
            }  # fmt: skip
            at = {"project": str(project)}
            for tool, arguments in (
                ("start_baseline", at), ("start_run", at | {"steps": 1, "values": {}}),
            ):  # fmt: skip
                assert "Starting runs is not allowed." in await agent.refused(tool, **arguments)
            for tool, arguments in (
                ("set_settings", at | {"values": {"train.lr": 1e-3}}),
                ("set_rubric", at | {"rubric": "x"}),
            ):
                assert "Changes are not allowed" in await agent.refused(tool, **arguments)
            assert "Only runs that this server has started" in await agent.refused(
                "stop_run", run="01M000000000000000000000"
            )
            proposal = await agent.call(
                "propose_settings", **at, values={"train.lr": 1e-3, "agent.timeout_s": 9}
            )
            assert "+timeout_s = 9" in proposal["diff"]
            assert "memory" in json.dumps(proposal["forecast"]) or proposal["forecast"]
            proposal = await agent.call("propose_rubric", **at, rubric="Be brief.\n")
            assert proposal["diff"].splitlines()[-2:] == ["-Answer briefly.", "+Be brief."]
            found = await agent.call("get_project", **at)
            assert found["rubric"] == "Answer briefly.\n"
            assert "/no-such" in await agent.refused("get_run", run="/no-such")

    asyncio.run(drive())
    assert contents(project) == before


@pytest.mark.parametrize(
    "key", ["agent.command", "judge.base_url", "model.name", "track.wandb.on", "train.steps"]
)
def test_settings_that_run_programs_or_send_data_cannot_be_set(key: str) -> None:
    with pytest.raises(Refused, match=f"{key} cannot be set by a coding agent"):
        check_keys({"train.lr": 1e-4, key: "x"})


def test_cost_of_judges_is_limited() -> None:
    judged = ProjectConfig.model_validate({"judge": {"enabled": True, "models": ["openai/x"]}})
    with pytest.raises(Refused, match="0 of 0 USD are used"):
        Limits(runs=1, steps=5).overrides(judged, 5, {}, [])
    limits = Limits(runs=1, steps=5, usd=1.5)
    assert limits.overrides(judged, 5, {}, []) == {"train.steps": 5, "judge.budget_usd": 1.5}
