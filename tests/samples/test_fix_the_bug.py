"""Sample fix_the_bug: generated bugs, rollouts in the sandbox at each level, tricks."""

import asyncio
import json
import random
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engine.protocol.config.project import AgentConfig
from engine.protocol.problems import RolloutError
from engine.rollout.agents.processes import AgentResult, Attempt
from engine.rollout.sandbox import machine
from engine.rollout.sandbox.pool import agent_pool
from engine.storage.project import load_config
from tests.samples.conftest import SAMPLES, Scripted, lines_of, load_importable, load_module
from tests.support.namespaces import needs_namespaces

FOLDER = SAMPLES / "fix_the_bug"
LEVELS = (1, 2, 3, 4)
DATA = sorted(
    str(file.relative_to(FOLDER))
    for file in [*FOLDER.glob("scenarios/*.jsonl"), *FOLDER.glob("demonstrations/*.jsonl")]
)
Model = tuple[type[Scripted], SimpleNamespace]
Words = str | tuple[str, dict[str, Any]]


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("agent", "bugs", "functions", "arguments"):
        folder = {"agent": FOLDER, "arguments": FOLDER / "scenarios" / "repositories"}
        load_importable(monkeypatch, folder.get(name, FOLDER / "scenarios"), name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load_module(FOLDER / "scenarios", "make_data")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy of the sample to whose hidden tests a test can add."""
    folder = tmp_path / "project"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "runs").mkdir()
    return folder


def bug_of(maker: ModuleType, project: Path, level: int) -> tuple[dict[str, Any], dict[str, str]]:
    """A new scenario of this level, and the correct text of its modules."""
    luck = random.Random(level)
    row = None
    while row is None:
        row = maker.small(luck) if level == 1 else maker.repository(luck, "league", level)
    hidden: list[dict[str, Any]] = []
    (scenario,) = maker.named("new-", [row], hidden)
    with (project / "scenarios" / "hidden.jsonl").open("a") as file:
        file.write(json.dumps(hidden[0]) + "\n")
    return scenario, row["right"]


def corrections(scenario: dict[str, Any], right: dict[str, str]) -> list[Words]:
    """Edits that replace each module with a bug by the correct one."""
    return [
        ("edit", {"file": f"{name}.py", "line": 1, "last": wrong.count("\n"), "text": text})
        for name, text in right.items()
        if (wrong := scenario["files"][f"{name}.py"]) != text
    ]


def play(project: Path, scenario: dict[str, Any], model: SimpleNamespace) -> AgentResult:
    """Result of a rollout of the sample in its sandbox. Raises RolloutError if it is unscored."""

    async def run() -> AgentResult:
        config = AgentConfig(sandbox="process", timeout_s=60)
        pool = agent_pool(project, config, project / "runs" / "log")
        await pool.start()
        try:
            return await pool.run(Attempt(scenario, model.base_url, "key", "policy"))
        finally:
            await pool.close()

    return asyncio.run(run())


@needs_namespaces
@pytest.mark.parametrize("level", LEVELS)
def test_correct_edits_have_reward_1(
    maker: ModuleType, project: Path, scripted: Model, level: int
) -> None:
    scenario, right = bug_of(maker, project, level)
    server, model = scripted
    edits = corrections(scenario, right)
    server.words = [*edits] if level == 1 else [("run", {"command": "cat matches.py"}), *edits]
    result = play(project, scenario, model)
    assert len(edits) == (2 if level == 4 else 1)
    assert result.parts == {"hidden_tests": 1, "fixed": 1, "tests_broken": 0}
    assert result.metrics["visible_tests"] == 1
    assert result.metrics["edits"] == len(edits)
    first = server.asked[0][1]["content"]
    assert first.endswith(scenario["fails"])
    if level == 1:
        for number, line in enumerate(scenario["files"]["lib.py"].splitlines(), 1):
            assert f"{number} {line}\n" in first
    else:
        assert first.startswith("Files: README.md, ")
        assert scenario["files"]["matches.py"].strip() in server.asked[1][-1]["content"]


@needs_namespaces
@pytest.mark.parametrize("level", LEVELS)
def test_doing_nothing_has_less(
    maker: ModuleType, project: Path, scripted: Model, level: int
) -> None:
    scenario, _ = bug_of(maker, project, level)
    server, model = scripted
    server.words = ["There is nothing to do."]
    result = play(project, scenario, model)
    assert result.parts["hidden_tests"] <= 0.5
    assert result.parts["fixed"] == 0
    assert result.metrics["turns"] == 1


@needs_namespaces
def test_agent_sees_neither_solutions_nor_hidden_tests(
    maker: ModuleType, project: Path, scripted: Model
) -> None:
    scenario, _ = bug_of(maker, project, 2)
    server, model = scripted
    commands = [
        f"cat {project}/rewards.py",
        f"ls {project}/scenarios {project}/demonstrations",
        "rm tests.py; echo 'import sys; sys.exit(0)' | tee conftest.py sitecustomize.py",
        "python -c 'while True: print(1)'",
    ]
    server.words = [("run", {"command": one}) for one in commands] + ["Done."]
    result = play(project, scenario, model)
    said = [one["content"] for one in server.asked[-1] if one["role"] == "tool"]
    assert len(said) == len(commands)
    assert "hidden_tests" not in said[0]
    assert "hidden.jsonl" not in said[1]
    assert "level-1.jsonl" not in said[1]
    assert said[3].endswith("ended: too much output")
    assert result.parts["hidden_tests"] <= 0.5
    assert result.metrics["commands"] == len(commands)


@needs_namespaces
def test_scenario_without_hidden_tests_is_unscored(
    maker: ModuleType, project: Path, scripted: Model
) -> None:
    scenario, _ = bug_of(maker, project, 1)
    server, model = scripted
    server.words = ["No."]
    with pytest.raises(RolloutError, match=r"hidden\.jsonl has no tests for the scenario own-1"):
        play(project, {**scenario, "id": "own-1"}, model)


def test_calls_that_do_not_fit_are_answered(tmp_path: Path) -> None:
    agent = load_module(FOLDER, "agent")
    (tmp_path / "secret.py").write_text("secret\n")
    agent.write(tmp_path / "repository", {"lib.py": "def f():\n    return 1\n", "tests.py": ""})
    metrics = dict.fromkeys(agent.METRICS, 0)

    def say(name: str, arguments: str) -> str:
        call = SimpleNamespace(name=name, arguments=arguments)
        answer: str = asyncio.run(agent.use(tmp_path / "repository", call, metrics))
        return answer

    place = '{"file": "%s", "line": %s, "text": "return 2"}'
    assert say("edit", place % ("../secret.py", 1)) == "There is no file ../secret.py."
    assert say("edit", place % ("lib.py", 3)) == "lib.py has the lines 1 to 2."
    assert say("edit", place % ("lib.py", '"x"')) == "That does not work: ValueError."
    assert say("edit", '{"file": "lib.py"}') == "The argument 'line' is missing."
    assert say("edit", "[1]") == "That does not work: TypeError."
    assert say("edit", "{") == "That does not work: JSONDecodeError."
    assert say("look", "{}") == "There is no tool look."
    assert metrics["wrong_calls"] == 7
    assert say("edit", place % ("lib.py", 2)) == "tests.py passes."
    assert (tmp_path / "repository" / "lib.py").read_text() == "def f():\n    return 2\n"
    assert (tmp_path / "secret.py").read_text() == "secret\n"
    assert say("run", '{"command": "exit 3"}') == "no output"


# Rewards


RIGHT = "def double(n):\n    return 2 * n\n"
SCENARIO = {"id": "double", "files": {"lib.py": "", "tests.py": "", "README.md": ""}}
TESTS = [["lib", "double", f"({n},)", repr(2 * n), n == 0] for n in range(5)]


@pytest.fixture
def rewards(project: Path) -> ModuleType:
    with (project / "scenarios" / "hidden.jsonl").open("a") as file:
        file.write(json.dumps({"id": "double", "tests": TESTS}) + "\n")
    return load_module(project, "rewards")


def scored(rewards: ModuleType, scratch: Path, **files: str) -> list[float]:
    """Share of the hidden tests, whether all pass, and share of broken ones for these modules."""
    folder = scratch / "repository"
    if not folder.is_symlink():
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    parts = (rewards.hidden_tests, rewards.fixed, rewards.tests_broken)
    return [part(SCENARIO, {}, str(scratch)) for part in parts]


@pytest.mark.parametrize(
    ("lib", "parts"),
    [
        (RIGHT, [1, 1, 0]),
        ("import math, re\nfrom collections import Counter\n" + RIGHT, [1, 1, 0]),
        ("print('hello')\n" + RIGHT, [1, 1, 0]),
        ("def double(n):\n    return n\n", [0.2, 0, 0]),
        ("def double(n):\n    return 2\n", [0.2, 0, 1]),
        ("def double(n):\n    return 2 *\n", [0, 0, 1]),
        ("def double(n):\n    return 2 * n if n < 3 else 1 // 0\n", [0.6, 0, 0]),
        ("def double(n):\n    while n == 2: pass\n    return 2 * n\n", [0.4, 0, 0]),
    ],
)
def test_reward_is_share_of_hidden_tests(
    rewards: ModuleType, tmp_path: Path, lib: str, parts: list[float]
) -> None:
    assert scored(rewards, tmp_path / "scratch", lib=lib) == pytest.approx(parts)


TRICKS = {
    "exits when imported": "import sys; sys.exit(0)",
    "exits at once when imported": "import os; os._exit(0)",
    "exits when called": "import os\ndef double(n):\n    os._exit(0)",
    "is equal to everything": """
class Any(int):
    def __eq__(self, other): return True
    def __repr__(self): return "2"
def double(n):
    return Any()""",
    "writes one guess for all calls": """
import os
def double(n):
    os.write(1, b"".join(b"%d True\\n" % place for place in range(10)))
    return [0, 2, 4, 6, 8]""",
    "reads what the tests expect": """
import json, sys
def double(n):
    path = sys.argv[0].replace("tested.py", "scenarios/hidden.jsonl")
    for line in open(path):
        row = json.loads(line)
        if row["id"] == "double":
            return int(row["tests"][n][3])""",
    "reads it after closing a descriptor": """
import io, os, sys
path = sys.argv[0].replace("tested.py", "scenarios/hidden.jsonl")
def double(n):
    os.close(0)
    os.close(2)
    io.FileIO(path).read()
    return 2 * n""",
    "reads it by the loader of modules": """
import sys
from importlib.machinery import SourceFileLoader
path = sys.argv[0].replace("tested.py", "scenarios/hidden.jsonl")
def double(n):
    SourceFileLoader("x", path).get_data(path)
    return 2 * n""",
    "imports a module that is not preloaded": """
def double(n):
    import ctypes
    return 2 * n""",
    "starts a program": """
import os
def double(n):
    os.system("true")
    return 2 * n""",
    "forks": """
import os
def double(n):
    os.fork()
    return 2 * n""",
    "ends the process that scores it": """
import os, signal
def double(n):
    os.kill(os.getppid(), 9)
    return 2 * n""",
    "raises its limits": """
import sys
def double(n):
    sys.modules["resource"].setrlimit(sys.modules["resource"].RLIMIT_NOFILE, (50, 50))
    return 2 * n""",
    "looks for the answers in memory": """
import sys
def double(n):
    gc = __import__("gc")
    return [one for one in gc.get_objects()] and 2 * n""",
    "replaces what writes the results": """
import builtins, sys
builtins.repr = lambda value: "4"
sys.modules["__main__"].literal = lambda value: "Any"
def double(n):
    return n""",
    "deletes itself": None,
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_have_no_reward(rewards: ModuleType, tmp_path: Path, trick: str) -> None:
    """None passes a test that the bug makes fail; where a trick computes the right result, it is
    because the call before was refused that the test fails."""
    text = TRICKS[trick]
    found = scored(rewards, tmp_path / "scratch", **({} if text is None else {"lib": text}))
    assert found == [0, 0, 1] or trick == "replaces what writes the results", found
    assert found[0] <= 0.2


def test_added_files_are_not_used(rewards: ModuleType, tmp_path: Path) -> None:
    forged = "import lib; lib.double = lambda n: 2 * n\n"
    names = ("conftest", "sitecustomize", "usercustomize", "json", "importlib", "tests", "tested")
    wrong = "def double(n):\n    return 7\n"
    added = dict.fromkeys(names, forged)
    assert scored(rewards, tmp_path / "scratch", lib=wrong, **added) == [0, 0, 1]
    assert scored(rewards, tmp_path / "other", lib="import helper\n" + RIGHT, helper="") == [
        0,
        0,
        1,
    ]


def test_links_are_not_followed(rewards: ModuleType, tmp_path: Path) -> None:
    correct = tmp_path / "correct"
    correct.mkdir()
    (correct / "lib.py").write_text(RIGHT)
    (tmp_path / "one" / "repository").mkdir(parents=True)
    (tmp_path / "one" / "repository" / "lib.py").symlink_to(correct / "lib.py")
    assert scored(rewards, tmp_path / "one") == [0, 0, 1]
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "repository").symlink_to(correct)
    assert scored(rewards, tmp_path / "two") == [0, 0, 1]


def test_tests_that_do_not_start_are_not_reward_0(
    rewards: ModuleType, project: Path, tmp_path: Path
) -> None:
    (project / "tested.py").write_text("import no_such_module\n")
    with pytest.raises(RuntimeError, match="could not be started"):
        scored(rewards, tmp_path / "scratch", lib=RIGHT)


# Data


def test_scenarios_are_disjoint_and_have_hidden_tests() -> None:
    hidden = {row["id"]: row["tests"] for row in lines_of(FOLDER, "scenarios/hidden.jsonl")}
    splits = {
        level: [lines_of(FOLDER, f"scenarios/{name}.jsonl") for name in names]
        for level, names in {
            1: ("train", "validation"),
            **{level: (f"level-{level}", f"level-{level}-validation") for level in LEVELS[1:]},
        }.items()
    }
    seen = set()
    for level, (train, held_out) in splits.items():
        train_files, held_out_files = (
            {
                text
                for row in rows
                for name, text in row["files"].items()
                if name not in ("tests.py", "README.md")
            }
            for rows in (train, held_out)
        )
        assert not train_files & held_out_files
        for row in [*train, *held_out]:
            seen.add(row["id"])
            tests = hidden[row["id"]]
            assert row["level"] == level
            assert any(not passes for *_, passes in tests)
            assert "Error: " in row["fails"] or row["fails"].endswith("Error")
            calls = {f"{name}{args}".replace(",)", ")") for _, name, args, *_ in tests}
            repeated = [call for call in calls if call in row["files"]["tests.py"]]
            assert len(repeated) <= (sum(not passes for *_, passes in tests) == 1)
    assert seen == set(hidden)


def test_demonstrated_functions_are_not_in_the_scenarios() -> None:
    """Some of the edits are wrong: the warm-up leaves something to learn."""
    rows = [
        row
        for name in ("train", "validation")
        for row in lines_of(FOLDER, f"scenarios/{name}.jsonl")
    ]
    heads = {tuple(row["files"]["lib.py"].splitlines()[:2]) for row in rows}
    shown = lines_of(FOLDER, "demonstrations/level-1.jsonl")
    demonstrated = {
        tuple(line[2:] for line in row["messages"][1]["content"].splitlines()[1:3]) for row in shown
    }
    assert len(demonstrated) == len(shown) == 160
    assert not demonstrated & heads
    assert 0.1 < sum(len(row["messages"]) > 3 for row in shown) / len(shown) < 0.3


def test_failures_are_those_of_the_agents_tests(maker: ModuleType, tmp_path: Path) -> None:
    rows = [
        *lines_of(FOLDER, "scenarios/validation.jsonl")[:4],
        *lines_of(FOLDER, "scenarios/level-3.jsonl")[:4],
    ]
    for row in rows:
        maker.write(tmp_path / row["id"], row["files"])
        agent = sys.modules["agent"]
        metrics = dict.fromkeys(agent.METRICS, 0)
        found = asyncio.run(agent.visible_tests(tmp_path / row["id"], metrics))
        assert found == row["fails"]
        assert metrics["visible_tests"] == 0


def test_bugs_change_one_place_and_compile(maker: ModuleType) -> None:
    source = (
        "def f(a, b=2):\n    if not a:\n        return 0\n"
        "    return max(a, b) - sum(x for x in range(a) if x >= b)\n"
    )
    found = sys.modules["bugs"].bugs(source)
    kinds = {kind for kind, _ in found}
    assert kinds >= {
        "missing edge case", "missing not", "wrong comparison", "wrong constant", "wrong default",
        "wrong function", "wrong operator", "wrong variable", "swapped arguments", "off by one",
        "missing return",
    }  # fmt: skip
    assert len({text for _, text in found}) == len(found)
    assert ("wrong comparison", source.replace("x >= b", "x > b")) in found
    assert ("missing edge case", source.replace("    if not a:\n        return 0\n", "")) in found
    for _, text in found:
        compile(text, "bug", "exec")


def test_data_is_reproducible(
    maker: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "scenarios"
    shutil.copytree(FOLDER / "scenarios" / "repositories", elsewhere / "repositories")
    monkeypatch.setattr(maker, "HERE", elsewhere)
    maker.main()
    assert len(DATA) == 10
    for name in DATA:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_machine_without_sandbox_is_named_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "trial_problem", lambda: "it needs Linux")
    (check,) = machine.agent_checks(load_config(FOLDER).agent)
    assert check.state == "bad"
    assert check.words.endswith("this machine offers no sandbox: it needs Linux.")


def test_sample_has_a_drawing() -> None:
    assert (SAMPLES.parent / "icons" / "samples" / "fix-the-bug.svg").is_file()
