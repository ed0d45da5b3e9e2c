"""Text of the agent of Inspect tasks, which is run in tests/engine_http/test_inspect.py."""

import ast

from engine.integrations.packaged_tasks.project import AGENTS

TRACE = "INSPECT_TRACE_FILE"


def test_agent_names_no_trace_file() -> None:
    """Inspect deletes the file in INSPECT_TRACE_FILE when it exits: were it /dev/null, the device
    of the machine would be gone."""
    tree = ast.parse((AGENTS / "inspect" / "agent.py").read_text(encoding="utf-8"))
    uses = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(isinstance(one, ast.Constant) and one.value == TRACE for one in node.args)
    ]
    texts = [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == TRACE
    ]
    assert [ast.unparse(node.func) for node in uses] == ["os.environ.pop"]
    assert len(texts) == 1
    assert "devnull" not in ast.unparse(tree)
