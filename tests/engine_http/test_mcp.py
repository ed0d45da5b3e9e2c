"""MCP servers of a project, from mcp.json to training, over a real engine and real servers."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.autorl.project_files import AGENTS, begin_with_tools
from engine.environments import python_of
from engine.environments.bootstrap import OF_AGENT
from engine.integrations import mcp_servers
from engine.integrations.mcp_servers import discover_tools
from engine.protocol.config.mcp import ServerViews, SetServer
from engine.protocol.events.run import RunFinished, StepFinished
from engine.protocol.problems import Refused
from engine.protocol.requests.drafts import (
    DRAFT_MARK,
    BeginWithTools,
    DescribeTask,
    FinishProject,
    Writer,
)
from engine.protocol.requests.runs import TrajectoryQuery
from tests.agents import REQUIREMENTS
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import Engine, until
from tests.engine_http.test_authoring import DraftWriter, generate_draft
from tests.support.engine_starter import run_command
from tests.support.processes import is_alive

pytestmark = pytest.mark.usefixtures("installed_packages")
SERVER = str(REQUIREMENTS.parent / "library_server.py")
PAGED: dict[str, Any] = {
    "command": "python",
    "args": [str(REQUIREMENTS.parent / "paged_server.py")],
}
DEAF: dict[str, Any] = {**PAGED, "args": [*PAGED["args"], "--deaf"], "timeout_s": 600}
LIBRARY: dict[str, Any] = {"command": "python", "args": [SERVER], "timeout_s": 10}


@pytest.fixture(scope="module")
def installed_packages(real_cache: None) -> None:
    python_of(f"{OF_AGENT}{AGENTS / 'tools' / 'requirements.txt'}")


@pytest.fixture
def script() -> Iterator[Script]:
    grade = lambda place, text: (sum(map(ord, text)) % 7) / 6  # noqa: E731
    with provider(Script(grade=grade, writes=DraftWriter())) as script:
        yield script


@pytest.fixture
def tool_project(workspace: Path, script: Script, tiny_model: Path) -> Path:
    """Project generated for the tools of a server."""
    file = workspace / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"library": LIBRARY}}))
    folder = workspace / "librarian"
    done = run_command(
        "new", str(folder), "--mcp", str(file), "--model", "openai/scripted",
        "--base-url", script.url,
        "--describe", "People ask a librarian where books stand, and want to lend them.",
        "--count", "10", "--learner", str(tiny_model), "--price", "10", "20",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file.unlink()
    return folder


@pytest.fixture
def new_tool_project(workspace: Path) -> Path:
    """Project with an mcp.json, but without scenarios."""
    file = workspace / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"library": LIBRARY}}))
    begin_with_tools(workspace / "begun", file)
    return workspace / "begun"


def test_project_with_mcp_tools_trains(engine: Engine, tool_project: Path, script: Script) -> None:
    question = script.asked[1]["messages"][1]["content"]
    assert "find_book: The shelf on which a book stands." in question
    assert "requests of a person" in question
    small = {
        "train.steps": 1, "train.groups": 2, "train.group_size": 2, "train.max_tokens": 12,
        "model.max_context": 1600, "model.dtype": "float32", "judge.passes": 1,
        "train.validate_every": 0, "judge.canary_every": 0,
    }  # fmt: skip
    events = engine.wait(engine.train(tool_project, **small))
    assert isinstance(events[-1], RunFinished), events[-1]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [step.metrics["unscored"] for step in steps] == [0]

    def change(server: dict[str, Any]) -> ServerViews:
        request = SetServer(name="library", server=server)
        return engine.call(lambda client: client.set_server(str(tool_project), request))

    change({**LIBRARY, "args": ["-c", "raise SystemExit('no licence')"]})
    run = engine.train(tool_project, **small)
    events = engine.wait(run)
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert (steps[0].skipped, steps[0].metrics["unscored"]) == (True, 4)
    query = TrajectoryQuery(split="train")
    page = engine.call(lambda client: client.trajectories(run.id, query))
    for one in page.items:
        assert one.reward is None
        assert one.problem is not None
        assert "(no licence)" in one.problem.message


def test_each_server_is_checked_separately(engine: Engine, new_tool_project: Path) -> None:
    path = str(new_tool_project)

    def discover_tools() -> ServerViews:
        return engine.call(lambda client: client.look_at_servers(path))

    servers = {
        "chosen": {**LIBRARY, "tools": ["find_book"]},
        "gone": {"command": "no-such-program"},
        "away": {"url": "http://127.0.0.1:9/mcp", "timeout_s": 3},
    }
    for name, server in servers.items():
        request = SetServer(name=name, server=server)
        engine.call(lambda client, asked=request: client.set_server(path, asked))
    views = {view.name: view for view in discover_tools().servers}
    assert list(views) == ["library", *servers]
    assert len(views["library"].offered) == 4
    assert [tool.name for tool in views["chosen"].offered] == ["find_book"]
    assert len(views["chosen"].tools) == 4
    for name in ("gone", "away"):
        assert views[name].problem is not None
        assert views[name].tools == []
    for bad in ({}, {"command": "x", "url": "http://y"}, {"url": "ftp://x"}):
        request = SetServer(name="wrong", server=bad)
        with pytest.raises(Refused, match="wrong"):
            engine.call(lambda client, asked=request: client.set_server(path, asked))
    assert "wrong" not in json.loads((new_tool_project / "mcp.json").read_text())["mcpServers"]


def write_servers(project: Path, **servers: dict[str, Any]) -> None:
    (project / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


def run_in_agent_environment(project: Path, code: str) -> str:
    """Run code with the agent's Python next to its servers.py, and return the output."""
    python = python_of(f"{OF_AGENT}{AGENTS / 'tools' / 'requirements.txt'}")
    command = [python, "-c", f"import asyncio, servers\n{code}"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_tool_pages_are_read_and_empty_result_is_text(new_tool_project: Path) -> None:
    write_servers(new_tool_project, paged=PAGED)
    views = asyncio.run(discover_tools(new_tool_project)).servers
    assert [tool.name for tool in views[0].tools] == ["first", "second", "third"]
    code = """
async def call():
    async with servers.Tools(".", servers.read_servers(".")) as tools:
        print(repr(await tools.call("third", "{}")))
asyncio.run(call())
"""
    assert run_in_agent_environment(new_tool_project, code) == "('', True)\n"


def started_servers(project: Path) -> list[psutil.Process]:
    """Return the server processes that were started in a project."""
    pids = [int(file.name.partition("-")[2]) for file in project.glob("paged-*")]
    return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


def test_slow_server_does_not_delay_others_and_is_killed(
    new_tool_project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The total time limit applies even if a server allows longer calls."""
    quick = tmp_path / "servers.py"
    text = mcp_servers.LOOK.read_text()
    assert "\nLOOK_S = 75\n" in text
    quick.write_text(text.replace("\nLOOK_S = 75\n", "\nLOOK_S = 8\n"))
    monkeypatch.setattr(mcp_servers, "LOOK", quick)
    write_servers(new_tool_project, slow=DEAF, library=LIBRARY)
    views = {view.name: view for view in asyncio.run(discover_tools(new_tool_project)).servers}
    assert len(views["library"].tools) == 4
    problem = views["slow"].problem
    assert problem is not None
    assert problem.message == "The MCP server slow did not say what it offers within 8 s."
    assert list(new_tool_project.glob("paged-*")), "the server was started"
    until(lambda: not any(is_alive(one) for one in started_servers(new_tool_project)))


def test_cancelled_check_kills_unresponsive_servers(new_tool_project: Path) -> None:
    write_servers(new_tool_project, slow=DEAF)

    async def cancel() -> None:
        looks = asyncio.create_task(discover_tools(new_tool_project))
        while not started_servers(new_tool_project):
            assert not looks.done()
            await asyncio.sleep(0.05)
        looks.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looks

    asyncio.run(cancel())
    assert list(new_tool_project.glob("paged-*"))
    assert not any(is_alive(one) for one in started_servers(new_tool_project))


def test_tool_project_is_created_over_http(engine: Engine, workspace: Path, script: Script) -> None:
    file = workspace / "servers.json"
    library = {**LIBRARY, "note": "mine"}
    file.write_text(json.dumps({"mcpServers": {"library": library}}))
    folder = str(workspace / "window")

    def begin(folder: str, servers: str) -> ServerViews:
        body = BeginWithTools(folder=folder, servers=servers)
        return engine.call(lambda client: client.begin_with_tools(body))

    views = begin(folder, str(file))
    assert (views.read, [view.is_listed for view in views.servers]) == (True, [False])
    chosen = SetServer(name="library", server={**LIBRARY, "tools": ["find_book"]})
    engine.call(lambda client: client.set_server(folder, chosen))
    stored = json.loads((workspace / "window" / "mcp.json").read_text())["mcpServers"]["library"]
    assert stored["note"] == "mine", "unknown keys are kept"
    checked = engine.call(lambda client: client.look_at_servers(folder))
    tools = [tool for view in checked.servers for tool in view.offered]
    assert [tool.name for tool in tools] == ["find_book"]

    writer = Writer(model="openai/scripted", base_url=script.url)
    text = "People ask a librarian where books stand, and want to lend them."
    description = DescribeTask(
        folder=folder, description=text, writer=writer, count=10, tools=tools
    )
    last = generate_draft(engine, description)[-1]
    assert (last.problem, len(last.draft.scenarios)) == (None, 10)
    view = engine.call(lambda client: client.project(folder))
    assert view.toml.startswith(DRAFT_MARK), "the unfinished draft is marked"
    assert view.description == text
    done = FinishProject(folder=folder, draft=last.draft, judge=writer, tools=True)
    view = engine.call(lambda client: client.finish_project(done))
    assert view.problems == []
    assert not view.toml.startswith(DRAFT_MARK)

    (workspace / "mine").mkdir()
    (workspace / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        begin(str(workspace / "mine"), str(file))
    file.write_text('{"mcpServers": {}}')
    with pytest.raises(Refused, match="no MCP servers"):
        begin(str(workspace / "other"), str(file))
    assert not (workspace / "other").exists()
    assert begin(str(workspace / "other"), "").servers == []


def test_mcp_commands_add_choose_and_remove_servers(new_tool_project: Path) -> None:
    project = str(new_tool_project)
    assert run_command("mcp", "add", project, "more", "--", "python", SERVER).returncode == 0
    assert run_command("mcp", "choose", project, "more", "find_book").returncode == 0
    done = run_command("mcp", "choose", project, "more", "find_book", "find_bok")
    assert done.returncode == 1
    assert "more has no tool find_bok. Did you mean find_book?" in done.stderr
    done = run_command("mcp", "tools", project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("x find_book") == 2
    assert done.stdout.count("x lend_book") == 1
    listed = json.loads((new_tool_project / "mcp.json").read_text())
    listed["mcpServers"]["more"]["tools"] = ["find_bok"]
    (new_tool_project / "mcp.json").write_text(json.dumps(listed))
    done = run_command("mcp", "tools", project)
    assert done.returncode == 1
    assert "more has no tool find_bok" in done.stderr
    assert run_command("mcp", "remove", project, "library").returncode == 0
    assert list(json.loads(run_command("mcp", "list", project, "--json").stdout)) == ["more"]
    assert run_command("mcp", "add", project, "bad name", "--", "python").returncode == 2
    (new_tool_project / "mcp.json").write_text("{")
    done = run_command("mcp", "list", project)
    assert done.returncode == 2
    assert "mcp.json, line 1" in done.stderr
