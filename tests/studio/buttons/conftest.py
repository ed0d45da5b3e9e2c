"""World of the button scenes: a real engine with a trained, an imported and a failed run, and a
judge provider."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import keyring
import psutil
import pytest
from keyring.backend import KeyringBackend

from engine.protocol.requests.runs import ImportRun
from engine.runtime.ids import ulid
from engine.trust.addresses import confirm_address
from studio.services import editor
from tests.engine.judge.scripted import Grade, Script, provider
from tests.engine.storage.run_db.test_repair import make
from tests.engine_http.conftest import (
    AGENT,
    CACHE,
    Engine,
    make_project,
    start_engine,
    stop_engine,
    temporary_home,
    until,
)
from tests.engine_http.test_judge import JUDGE, letters
from tests.engine_http.test_trials import RUBRIC, trajectories_file
from tests.support.processes import is_alive

EVEN = (
    "sum(c.isalpha() for c in reply)",
    "(scenario['id'] != 's0') * sum(c.isalpha() for c in reply)",
)
"""Reward that is equal for every rollout of scenario s0, so that its group has no signal."""
RAISES = """
async def rollout(scenario, model):
    raise RuntimeError("broken on purpose")
"""


@dataclass
class World:
    """Workspace, its engine, and the provider that judges call."""

    engine: Engine
    workspace: Path
    lab: Path
    """A trusted project with a judge (off), a trained run and an imported one."""
    stranger: Path
    """An untrusted project."""
    fresh: Path
    """A trusted project without a run."""
    failing: Path
    """A trusted project whose agent raises."""
    trained: str
    imported: str
    failed: str
    damaged: str
    lost: str
    """Id of another damaged run, to delete."""
    script: Script
    model: Path
    letters: Grade = letters
    """Default grades of the provider."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with (
        temporary_home(tmp_path_factory.mktemp("home")) as workspace,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_CACHE_HOME", CACHE)  # the judge's environment is installed once
        patch.setenv("HOME", str(workspace.parent))
        yield workspace


@pytest.fixture(autouse=True)
def clean_home(home: Path) -> Path:
    """Home of the module, with the files of its engine."""
    return home.parent


@pytest.fixture(scope="module")
def world(home: Path, tiny_model: Path) -> Iterator[World]:
    with provider(Script(grade=letters)) as script:
        engine = start_engine(home)
        child_processes: list[psutil.Process] = []
        try:
            yield make_world(engine, home, tiny_model, script)
            child_processes = engine.child_processes("")
        finally:
            stop_engine(engine)
            until(lambda: not any(is_alive(process) for process in child_processes))


class MemoryKeyring(KeyringBackend):
    """Keyring backend that keeps passwords in a dict."""

    priority = 1.0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.passwords[service, username]


@pytest.fixture(autouse=True)
def own_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)


@pytest.fixture(autouse=True)
def no_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the desktop open files, whose addresses are recorded, and not an installed editor."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.setattr(editor, "UNASKED", ())


@pytest.fixture(autouse=True)
def no_stray_threads() -> None:
    """Disable the thread check: the provider has a thread for every open connection."""


@pytest.fixture
def may_stay(request: pytest.FixtureRequest) -> Callable[[psutil.Process], bool]:
    """Allow the engine of the module and its children to stay."""
    if "world" not in request.fixturenames:
        return lambda process: False
    pid = request.getfixturevalue("world").engine.process.pid
    return lambda process: pid in {process.pid, *(one.pid for one in process.parents())}


def make_world(engine: Engine, workspace: Path, model: Path, script: Script) -> World:
    toml = JUDGE.format(url=script.url).replace("enabled = true", "enabled = false")
    lab = make_project(workspace / "lab", model, agent=AGENT.replace(*EVEN), toml=toml)
    file = lab / "project.toml"
    file.write_text(file.read_text().replace("[train]", "[train]\nvalidation_attempts = 2"))
    (lab / "rubric.md").write_text(RUBRIC)
    write_demonstrations(lab)
    fresh = make_project(workspace / "fresh", model)
    failing = make_project(workspace / "failing", model, agent=RAISES)
    stranger = workspace / "stranger"
    shutil.copytree(lab, stranger)
    confirm_address("openai", script.url)
    engine.call(lambda client: client.lend_keys({"openai": "sk-x"}))
    settings = {"train.steps": 3, "train.checkpoint_every": 1, "train.validate_every": 3}
    settings["judge.enabled"] = True
    trained = engine.train(lab, **settings)
    source = ImportRun(source=str(trajectories_file(lab)))
    imported = engine.call(lambda client: client.import_run(str(lab), source))
    engine.wait(trained)
    failed = engine.train(failing, **{"train.steps": 1, "train.validate_every": 0})
    engine.wait(failed)
    damaged, lost = (lab / "runs" / ulid() for _ in range(2))
    for folder in (damaged, lost):
        damage_run(make(folder, 60))
    return World(
        engine, workspace, lab, stranger, fresh, failing, trained.id, imported.id, failed.id,
        damaged.name, lost.name, script, model,
    )  # fmt: skip


def damage_run(run: Path) -> None:
    """Adapt the id of a copied run, and damage its last event."""
    file, run_id = run / "run.json", json.loads((run / "run.json").read_text())["id"]
    file.write_text(file.read_text().replace(run_id, run.name))
    db = apsw.Connection(str(run / "run.db"))
    db.execute("UPDATE events SET body = replace(body, ?, ?)", (run_id, run.name))
    last = "SELECT max(seq) FROM events WHERE kind IN ('step.finished', 'run.started')"
    db.execute(f"UPDATE events SET body = ? WHERE seq = ({last})", ("{",))
    db.close()


def write_demonstrations(project: Path) -> None:
    """Write two valid demonstrations and an invalid line."""
    good = {
        "messages": [{"role": "user", "content": "Say 1"}, {"role": "assistant", "content": "a"}]
    }
    lines = [json.dumps(good), json.dumps(good), '{"messages": []}']
    (project / "demonstrations.jsonl").write_text("\n".join(lines) + "\n")
