"""Fixtures of HTTP tests: a real engine process over a temporary workspace, with a tiny model."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import apsw
import psutil
import pytest

from engine.client import EngineClient
from engine.protocol.events.run import FINAL, Event, UnknownEvent
from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from engine.protocol.requests.runs import Command, Handshake, StartRun
from engine.storage.run_folder.run import is_locked
from engine.trust.projects import trust_project
from tests.support.engine_starter import Started, starter
from tests.support.processes import is_alive

ROOT = Path(__file__).parents[2]
STAYING = (
    "engine.judge.providers.worker",
    "engine.policy.torch.preloaded",
    "engine.judge.providers.preloaded",
    "fork-server of ",
)
"""Processes that a shared engine keeps for the next test."""
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
"""Cache of the user who runs the tests: large environments are installed there only once."""
T = TypeVar("T")

ASK = r"""
import asyncio
import json
from urllib.parse import urlsplit

async def ask(model, question):
    address = urlsplit(model.base_url)
    messages = [{"role": "user", "content": question}]
    body = json.dumps({"model": model.name, "messages": messages}).encode()
    head = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {model.api_key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(head.encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    start, _, content = answer.partition(b"\r\n\r\n")
    if start.split()[1:2] != [b"200"]:
        raise RuntimeError(f"the gateway answered {answer[:500]}")
    return json.loads(content)["choices"][0]["message"]["content"] or ""
"""
"""Function of agents that asks the policy: with the standard library alone, since importing httpx
or the OpenAI SDK takes longer than anything else that most agents here do."""

AGENT = f"""{ASK}
async def rollout(scenario, model):
    reply = await ask(model, scenario["q"])
    return {{"reward": sum(c.isalpha() for c in reply) / 8, "metrics": {{"length": len(reply)}}}}
"""
"""Agent of most projects here."""

TOML = """
[model]
name = "{model}"
dtype = "float32"
max_context = 200
rank = 4

[agent]
timeout_s = 20

[train]
steps = 3
groups = 2
group_size = 4
lr = 1e-2
max_tokens = 8
validate_every = 2
checkpoint_every = 2
"""


@dataclass
class Engine:
    """Started engine, its port and token."""

    process: "subprocess.Popen[bytes] | Started"
    port: int
    token: str
    workspace: Path

    def call(self, work: Callable[[EngineClient], Awaitable[T]]) -> T:
        async def run() -> T:
            async with EngineClient(self.port, self.token) as client:
                return await work(client)

        return asyncio.run(run())

    def train(self, project: Path, **overrides: Any) -> RunSummary:
        request = StartRun(project=str(project), overrides=overrides)
        return self.call(lambda client: client.start_run(request))

    def wait(self, run: RunSummary, timeout_s: float = 120) -> list[Event | UnknownEvent]:
        """Wait for the end of a run and return its stored events."""

        async def follow(client: EngineClient) -> list[Event | UnknownEvent]:
            events: list[Event | UnknownEvent] = []
            async with asyncio.timeout(timeout_s):
                async for event in client.events(run.id):
                    if event.seq is not None:
                        events.append(event)
                    ended = isinstance(event, FINAL)
                    if ended and (await client.run(run.id)).state not in ACTIVE_STATES:
                        return events
            raise AssertionError("the stream ended before the run")

        return self.call(follow)

    def wait_for(self, run: RunSummary, kind: str, timeout_s: float = 60) -> Event | UnknownEvent:
        async def follow(client: EngineClient) -> Event | UnknownEvent:
            async with asyncio.timeout(timeout_s):
                async for event in client.events(run.id):
                    if event.kind == kind:  # type: ignore[union-attr]
                        return event
            raise AssertionError("the stream ended")

        return self.call(follow)

    def child_processes(self, word: str) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children(recursive=True)
        matching = []
        for child in children:
            try:
                if word in " ".join(child.cmdline()):
                    matching.append(child)
            except psutil.Error:
                continue
        return matching

    def stop_runs(self, workspace: Path) -> None:
        """Stop all active runs of a workspace, and wait until their processes are gone."""

        async def stop(client: EngineClient) -> None:
            if not (await client.info()).living_runs:
                return
            for file in workspace.rglob("project.toml"):
                for run in (await client.project(str(file.parent))).runs:
                    if run.state in ACTIVE_STATES:
                        await client.command(run.id, Command(action="stop_now"))

        self.call(stop)
        until(
            lambda: (
                not (self.child_processes("engine.policy.torch") or self.child_processes("host.py"))
            )
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds used by the engine so far.

        Unlike wall time, independent of load.
        """
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def start_engine(
    workspace: Path, before: Sequence[str] = (), stderr: IO[bytes] | None = None
) -> Engine:
    """Start an engine.

    `before` is a command that wraps the engine's (then the preloaded starter is not used).
    """
    argv = [*before, sys.executable, "-m", "engine", "serve", "--workspace", str(workspace)]
    process: subprocess.Popen[bytes] | Started
    if not before and (ready := starter()):
        process = ready.start(argv, 2 if stderr is None else stderr.fileno())
    else:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as out:
        handshake = Handshake.model_validate_json(out.readline())
    runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "atelier"
    records = [json.loads(file.read_text()) for file in runtime.glob("engine-*.json")]
    token = next(r["token"] for r in records if r["port"] == handshake.port)
    return Engine(process, handshake.port, token, workspace)


def stop_engine(engine: Engine) -> None:
    if engine.process.poll() is None:
        engine.process.terminate()
        engine.process.wait(timeout=30)


@contextlib.contextmanager
def temporary_home(folder: Path) -> Iterator[Path]:
    """Set XDG directories below a folder; yield the workspace in it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "DATA", "STATE", "CACHE", "RUNTIME"):
            place = folder / "xdg" / name.lower()
            place.mkdir(parents=True, mode=0o700)
            patch.setenv(f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}", str(place))
        workspace = folder / "workspace"
        workspace.mkdir()
        yield workspace


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Temporary home of a module; yields the workspace in it."""
    with temporary_home(tmp_path_factory.mktemp("home")) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def real_cache(home: Path) -> Iterator[None]:
    """Use the real cache, so that environments are installed only once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", CACHE)
        yield


@pytest.fixture(scope="module")
def shared_engine(home: Path) -> Iterator[Engine]:
    """Engine for all tests of a module; its children end with it."""
    engine = start_engine(home)
    yield engine
    children = engine.child_processes("")
    stop_engine(engine)
    until(lambda: not any(is_alive(process) for process in children))


@pytest.fixture
def engine(shared_engine: Engine, workspace: Path) -> Iterator[Engine]:
    """Engine of the module; active runs are stopped after the test."""
    yield shared_engine
    shared_engine.stop_runs(workspace)


@pytest.fixture
def own_engine(workspace: Path) -> Iterator[Engine]:
    """Engine of a single test."""
    engine = start_engine(workspace)
    yield engine
    stop_engine(engine)


@pytest.fixture
def may_stay() -> Callable[[psutil.Process], bool]:
    """Allow judge and fork server of a shared engine to stay."""
    return lambda process: any(word in " ".join(process.cmdline()) for word in STAYING)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Empty workspace of a test."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def project(workspace: Path, tiny_model: Path) -> Path:
    return make_project(workspace / "letters", tiny_model)


def make_project(folder: Path, model: Path, agent: str = AGENT, toml: str = "") -> Path:
    """Write a small trusted project."""
    (folder / "scenarios").mkdir(parents=True)
    (folder / "agent.py").write_text(agent)
    (folder / "project.toml").write_text(TOML.format(model=model) + toml)
    lines = [json.dumps({"id": f"s{n}", "q": f"Say {n}"}) for n in range(6)]
    (folder / "scenarios" / "train.jsonl").write_text("\n".join(lines[:4]) + "\n")
    (folder / "scenarios" / "validation.jsonl").write_text("\n".join(lines[4:]) + "\n")
    trust_project(folder)
    return folder


def delete_checkpoints_after(run: RunSummary, step: int) -> None:
    """Delete every checkpoint after a step; trajectories and labels stay."""
    folder = Path(run.path)
    until(lambda: not is_locked(folder))
    db = apsw.Connection(str(folder / "run.db"))
    db.set_busy_timeout(10_000)  # another process may be reading
    db.execute("DELETE FROM checkpoints WHERE step > ?", (step,))
    db.execute("DELETE FROM events WHERE kind = 'run.finished'")
    db.close()
    for checkpoint in (folder / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > step:
            shutil.rmtree(checkpoint)


def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)
