"""Tools agent over real MCP servers, in its own process, with a scripted policy."""

import json
import shutil
from pathlib import Path

import pytest

from engine.autorl.project_files import AGENTS
from engine.environments import python_of
from engine.environments.bootstrap import OF_AGENT
from engine.protocol.config.agent import AgentConfig
from engine.protocol.problems import RolloutError
from tests.agents import REQUIREMENTS
from tests.engine.rollout.conftest import GatewayHarness, main_conversation
from tests.engine.rollout.gateway.test_frameworks import run_agent, script_replies

SERVER = REQUIREMENTS.parent / "library_server.py"


@pytest.fixture(scope="module")
def python() -> str:
    return str(python_of(f"{OF_AGENT}{AGENTS / 'tools' / 'requirements.txt'}"))


@pytest.fixture
def project(tmp_path: Path, python: str) -> Path:
    for name in ("agent.py", "servers.py"):
        shutil.copy(AGENTS / "tools" / name, tmp_path)
    (tmp_path / "system.md").write_text("You are a librarian.")
    serve(tmp_path, python)
    return tmp_path


@pytest.fixture(autouse=True)
def large_context(harness: GatewayHarness) -> None:
    harness.session.max_context = 4000


def serve(project: Path, python: str, **more: object) -> None:
    library = {"command": python, "args": [str(SERVER)], "timeout_s": 3, **more}
    (project / "mcp.json").write_text(json.dumps({"mcpServers": {"library": library}}))


def call(tool: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def results(harness: GatewayHarness) -> list[str]:
    messages = main_conversation(harness.session.recording).messages
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_tool_calls_reach_the_server_and_results_the_model(
    harness: GatewayHarness, project: Path, python: str
) -> None:
    script_replies(
        harness, call("find_book", title="Dune"), call("lend_book", title="Dune", days=9), "Done."
    )
    result = run_agent(harness, project, AgentConfig(python=python))
    assert result.parts == {}
    assert result.metrics == {"tool_calls": 2, "wrong_calls": 0}
    assert results(harness) == ["Dune stands on shelf 7", "Dune is yours for 9 days"]
    (branch,) = harness.session.recording.branches()
    assert len(branch.spans) == 3


def test_wrong_tool_calls_are_reported_to_the_model(
    harness: GatewayHarness, project: Path, python: str
) -> None:
    wrong_calls = [
        call("find_book", name="Dune"),
        call("burn_book"),
        call("lend_book", title="D", days=99),
    ]
    script_replies(harness, *wrong_calls, "I give up.")
    result = run_agent(harness, project, AgentConfig(python=python))
    assert result.metrics == {"tool_calls": 3, "wrong_calls": 3}
    missing, unknown, invalid = results(harness)
    assert "Field required" in missing
    assert unknown == "There is no tool burn_book."
    assert "lend_book" in invalid


def test_only_the_selected_tools_are_offered(
    harness: GatewayHarness, project: Path, python: str
) -> None:
    serve(project, python, tools=["find_book"])
    script_replies(harness, call("lend_book", title="Dune", days=1), "Done.")
    run_agent(harness, project, AgentConfig(python=python))
    offered = main_conversation(harness.session.recording).tools
    assert [tool["function"]["name"] for tool in offered] == ["find_book"]
    assert results(harness) == ["There is no tool lend_book."]


@pytest.mark.parametrize(
    ("reply", "changes", "words"),
    [
        (call("break_down"), {}, "library failed at break_down: Connection closed"),
        (call("wait_for_ever"), {}, "library failed at wait_for_ever: .*timed out"),
        ("", {"command": "no-such-program"}, "library cannot be used: FileNotFoundError"),
        ("", {"args": ["-c", "raise SystemExit('no config')"]}, r"cannot be used: .*\(no config\)"),
        ("", {"args": ["-c", "print('hello', flush=True); input()"]}, "cannot be used"),
        ("", {"tools": ["find_film"]}, "library has no tool find_film"),
    ],
)
def test_server_failure_leaves_the_rollout_unscored(
    harness: GatewayHarness,
    project: Path,
    python: str,
    reply: str,
    changes: dict[str, object],
    words: str,
) -> None:
    serve(project, python, **changes)
    script_replies(harness, reply, "Never sent.")
    with pytest.raises(RolloutError, match=words):
        run_agent(harness, project, AgentConfig(python=python))
