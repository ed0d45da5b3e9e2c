"""Sample mcp_tools: answers, tools and data agree with its server."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.environments import python_of
from engine.environments.bootstrap import OF_AGENT
from engine.storage.samples import create_project
from tests.samples.conftest import SAMPLES, lines_of

FOLDER = SAMPLES / "mcp_tools"
MADE = ("scenarios/train.jsonl", "scenarios/validation.jsonl", "demonstrations.jsonl")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "mcp_tools"
    create_project(folder, "mcp_tools")
    return folder


@pytest.fixture(scope="module")
def python(project: Path) -> str:
    return str(python_of(f"{OF_AGENT}{project / 'requirements.txt'}"))


def run(python: str, project: Path, code: str) -> Any:
    done = subprocess.run(
        [python, "-c", code], cwd=project, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def test_every_answer_comes_from_the_server(project: Path, python: str) -> None:
    code = (
        "import json, warehouse as w\n"
        "print(json.dumps({i: [w.stock(i), w.shelf(i), w.price(i)] for i in w.STOCK}))"
    )
    outputs = run(python, project, code)
    tools = ["stock", "shelf", "price"]
    for split in ("train", "validation"):
        for one in lines_of(FOLDER, f"scenarios/{split}.jsonl"):
            (item,) = [item for item in outputs if item in one["question"]]
            assert one["answer"] in outputs[item][tools.index(one["tool"])].split()


def test_short_correct_answer_is_accepted(project: Path, python: str) -> None:
    answers = {"37 pieces": True, "There are 37.": True, "137": False, "37a": False, "": False}
    code = (
        "import json, agent\n"
        f"print(json.dumps({{one: agent.is_right(one, '37') for one in {list(answers)!r}}}))"
    )
    assert run(python, project, code) == answers


def test_data_is_reproducible(project: Path, python: str, tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    shutil.copytree(project, folder)
    for name in MADE:
        (folder / name).unlink()
    subprocess.run([python, "make_data.py"], cwd=folder, check=True)
    for name in MADE:
        assert (folder / name).read_bytes() == (FOLDER / name).read_bytes()


def test_demonstrated_tools_equal_those_of_the_server(project: Path, python: str) -> None:
    code = (
        "import asyncio, json, servers\n"
        "from pathlib import Path\n"
        "async def main():\n"
        "    async with servers.Tools('.', {'warehouse': {'command': " + repr(python) + ",\n"
        "                                                'args': ['warehouse.py']}}) as tools:\n"
        "        print(json.dumps(tools.offered))\n"
        "asyncio.run(main())"
    )
    assert lines_of(FOLDER, "demonstrations.jsonl")[0]["tools"] == run(python, project, code)
