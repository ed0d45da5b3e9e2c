"""A world for the clicks: one real engine for all, a trained run, an imported one, a judge."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine.protocol.requests import ImportRun
from engine.trust.addresses import confirm_address
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import CACHE, Engine, at_home, make_project, start_engine, stop_engine
from tests.engine_http.conftest import is_alive, until
from tests.engine_http.test_judge import JUDGE, letters
from tests.engine_http.test_trials import RUBRIC, attempts_file


@dataclass
class World:
    """A workspace, its engine, and the provider that judges ask."""

    engine: Engine
    workspace: Path
    lab: Path
    """A trusted project with a judge (off), a trained run and an imported one."""
    stranger: Path
    """A project that nobody trusts."""
    trained: str
    imported: str
    script: Script
    model: Path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with at_home(tmp_path_factory.mktemp("home")) as workspace, pytest.MonkeyPatch.context() as patch:
        cache = CACHE or str(Path.home() / ".cache")
        patch.setenv("XDG_CACHE_HOME", cache)  # the judge's environment is installed once
        patch.setenv("HOME", str(workspace.parent))
        yield workspace


@pytest.fixture(autouse=True)
def clean_home(home: Path) -> Path:
    """The home of the module: its engine is found there."""
    return home.parent


@pytest.fixture(scope="module")
def world(home: Path, tiny_model: Path) -> Iterator[World]:
    with provider(Script(grade=letters)) as script:
        engine = start_engine(home)
        family: list[psutil.Process] = []
        try:
            yield fill(engine, home, tiny_model, script)
            family = engine.children("")
        finally:
            stop_engine(engine)
            until(lambda: not any(is_alive(process) for process in family))


@pytest.fixture
def may_stay(request: pytest.FixtureRequest) -> Callable[[psutil.Process], bool]:
    """The engine of the module stays, with what it has started."""
    if "world" not in request.fixturenames:
        return lambda process: False
    pid = request.getfixturevalue("world").engine.process.pid
    return lambda process: pid in {process.pid, *(one.pid for one in process.parents())}


def fill(engine: Engine, workspace: Path, model: Path, script: Script) -> World:
    toml = JUDGE.format(url=script.url).replace("enabled = true", "enabled = false")
    lab = make_project(workspace / "lab", model, toml=toml)
    (lab / "rubric.md").write_text(RUBRIC)
    demonstrations(lab)
    confirm_address("openai", script.url)
    engine.call(lambda client: client.lend_keys({"openai": "sk-x"}))
    settings = {"train.steps": 3, "train.checkpoint_every": 1, "train.validate_every": 3}
    trained = engine.train(lab, **settings)
    source = ImportRun(source=str(attempts_file(lab)))
    imported = engine.call(lambda client: client.import_run(str(lab), source))
    engine.wait(trained)
    stranger = workspace / "stranger"
    shutil.copytree(lab, stranger, ignore=shutil.ignore_patterns("runs", ".atelier"))
    return World(engine, workspace, lab, stranger, trained.id, imported.id, script, model)


def demonstrations(project: Path) -> None:
    """Two good lines and a bad one to learn from."""
    good = {"messages": [{"role": "user", "content": "Say 1"}, {"role": "assistant", "content": "a"}]}
    lines = [json.dumps(good), json.dumps(good), '{"messages": []}']
    (project / "demonstrations.jsonl").write_text("\n".join(lines) + "\n")
