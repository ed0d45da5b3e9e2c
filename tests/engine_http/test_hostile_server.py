"""Two servers, one of which lies in every message: nothing changes at home, no key leaks, and the
other server's run continues to its end.

Everything is real: the home engine, SSH, both engines. The hostile one is a real engine behind a
proxy that changes its responses (`tests/support/hostile_engine.py`,
`tests/support/false_answers.py`).
"""

import contextlib
import gc
import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from random import Random

import psutil
import pytest

from engine.protocol.problems import AtelierError, Problem
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.remote import ActOnHost, AddHost, HostView
from engine.protocol.requests.runs import Command, StartRun, TrajectoryQuery
from engine.trust.addresses import confirm_address
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import STAYING, Engine, make_project, stop_engine, until
from tests.engine_http.test_hosts import ServerPair, start_home
from tests.engine_http.test_judge import JUDGE, SECRET, UNREWARDED, letters
from tests.support import false_answers
from tests.support.hostile_engine import HostileEngine, Lie, write_attach_script
from tests.support.remote_engine import NAME, link_engine, link_environments, spec_of
from tests.support.ssh_server import FarSide, Keys

EVIL = "evil"
pytestmark = pytest.mark.long
NEW = "01JD5MAMBERKESTRE000000000"
"""Id of a new run, which a server may choose: it gets only a folder of its own."""
ESCAPED = Path("/tmp/atelier-escaped")
MOST_MEMORY = 780 * 2**20


@dataclass
class TwoServers:
    """Home engine, honest server and hostile server."""

    home: Engine
    honest: ServerPair
    base: Path
    """Atelier's folder on the hostile server."""
    hostile: HostileEngine
    watched: list[Path]
    script: Script
    evil_provider: Script
    memory: list[int] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)

    def view(self) -> HostView:
        return self.honest.view(EVIL)

    def act(self, action: str) -> None:
        body = ActOnHost.model_validate({"action": action})
        self.home.call(lambda client: client.act_on_host(EVIL, body))

    def reconnect(self) -> None:
        """Reconnect to the engine, which responds truthfully again."""
        self.hostile.lies = lambda kind, path, body: None
        self.notices += self.view().notices
        self.act("disconnect")
        self.act("connect")
        until(lambda: self.view().state == "connected", 40)

    def start(self, project: Path, **more: object) -> RunSummary:
        request = StartRun.model_validate({"project": str(project), "host": EVIL, **more})
        return self.home.call(lambda client: client.start_run(request))

    def _is_idle(self) -> bool:
        """Whether the home engine sends nothing more until told to."""
        return self.view().state in ("connected", "stopped")

    def send_lies(
        self, kind: str, told: Iterator[Lie], act: Callable[[], None] | None = None
    ) -> tuple[int, float]:
        """Respond to messages of a kind with one lie after the other.

        Return (number of lies, seconds).
        """
        rest, started_at = list(told), time.monotonic()
        Random(len(rest)).shuffle(rest)
        left = iter(rest)
        count = 0

        def lie(asked: str, path: str, body: bytes) -> Lie | None:
            nonlocal count
            if asked != kind:
                return None
            next_lie = next(left, None)
            count += next_lie is not None
            return next_lie

        self.hostile.lies = lie
        total = len(rest)
        while count < total and time.monotonic() < started_at + 3 * total + 10:
            before = count
            if act and self.view().state == "connected":
                with contextlib.suppress(AtelierError):
                    act()
            if count == before:  # a new connection repeats all requests
                self.act("disconnect")
                self.act("connect")
                end = time.monotonic() + 3.0
                while count == before and time.monotonic() < end and not self._is_idle():
                    time.sleep(0.02)
        return count, time.monotonic() - started_at


def snapshot(folders: list[Path], but: list[Path]) -> dict[str, tuple[int, int, str]]:
    """Return mode, size and hash of every file, and the targets of links."""
    states = {}
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix == ".tmp" or any(file.is_relative_to(one) for one in but):
                continue
            with contextlib.suppress(FileNotFoundError):
                if file.is_symlink():
                    states[str(file)] = (0, 0, os.readlink(file))
                elif file.is_file():
                    content = hashlib.sha256(file.read_bytes()).hexdigest()
                    states[str(file)] = (file.stat().st_mode, file.stat().st_size, content)
    return states


@pytest.fixture(scope="module")
def two_servers(
    home: Path, real_cache: None, ssh_keys: Keys, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoServers]:
    far = FarSide(tmp_path_factory.mktemp("far"), ssh_keys).start()
    honest, evil = far.home / ".atelier-engine", far.home / ".evil"
    for base in (honest, evil):
        link_engine(base)
    environments = link_environments(honest, evil)
    port_file = tmp_path_factory.mktemp("hostile") / "port"
    hostile = HostileEngine(port_file)
    python = next(evil.glob("engines/*/.venv/bin/python"))
    write_attach_script(python, hostile.port, port_file)
    person = tmp_path_factory.mktemp("person")
    engine = start_home(home, environments, person, far)
    pair = ServerPair(engine, far, honest)
    with provider(Script(grade=letters)) as script, provider(Script()) as evil_provider:
        watched = [home, home.parent / "xdg" / "data", home.parent / "xdg" / "config", person]
        both = TwoServers(engine, pair, evil, hostile, watched, script, evil_provider)
        confirm_address("openai", script.url)
        engine.call(lambda client: client.lend_keys({"openai": SECRET, "anthropic": SECRET}))
        spec = spec_of(far, EVIL).model_copy(update={"folder": "~/.evil"})
        for one in (spec_of(far), spec):
            engine.call(lambda client, one=one: client.add_host(AddHost(spec=one)))  # type: ignore[misc]
        pair.act("connect")
        both.act("connect")
        pair.until("connected")
        until(lambda: both.view().state == "connected", 40)
        yield both
        stop_engine(engine)
    for base in (honest, evil):
        left = ServerPair(engine, far, base)
        for process in left.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        until(lambda left=left: not left.processes())  # type: ignore[misc]
    hostile.stop()
    far.stop()
    with warnings.catch_warnings():  # AsyncSSH's server drops forwards of closed clients
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def may_stay(two_servers: TwoServers) -> Callable[[psutil.Process], bool]:
    def stays(process: psutil.Process) -> bool:
        words = " ".join(process.cmdline()) + process.environ().get("XDG_RUNTIME_DIR", "")
        return (
            any(word in words for word in STAYING)
            or str(two_servers.honest.base) in words
            or str(two_servers.base) in words
        )

    return stays


@contextlib.contextmanager
def watched_engine(two_servers: TwoServers) -> Iterator[None]:
    """Record the home engine's memory and response time in the background."""
    ended, process = threading.Event(), psutil.Process(two_servers.home.process.pid)

    def look() -> None:
        while not ended.wait(0.05):
            two_servers.memory.append(process.memory_info().rss)
            started_at = time.monotonic()
            two_servers.home.call(lambda client: client.info())
            two_servers.latency.append(time.monotonic() - started_at)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def make_judged_project(folder: Path, model: Path, script: Script) -> Path:
    project = make_project(folder, model, UNREWARDED, JUDGE.format(url=script.url))
    (project / "rubric.md").write_text("More letters are better.\n")
    return project


@pytest.mark.timeout(1800)
def test_hostile_server_changes_nothing_and_gets_no_key(
    two_servers: TwoServers, home: Path, tiny_model: Path
) -> None:
    """Each lie needs a connection of its own, while the honest run continues."""
    good = make_judged_project(home / "good", tiny_model, two_servers.script)
    bad = make_judged_project(home / "bad", tiny_model, two_servers.script)
    changes = {"train.checkpoint_every": 1, "train.steps": 400, "train.validate_every": 0}
    victim = two_servers.start(bad, overrides=changes)
    two_servers.home.wait_for(victim, "checkpoint.saved")
    two_servers.home.call(lambda client: client.command(victim.id, Command(action="pause")))
    two_servers.home.wait_for(victim, "run.paused")
    run = two_servers.honest.start(good, overrides={"train.steps": 2000, "train.validate_every": 0})
    two_servers.home.wait_for(run, "group.judged")
    records = home.parent / "xdg" / "data" / "atelier" / "remote_runs"
    but = [
        Path(victim.path),
        Path(run.path),
        home / ".atelier",
        records / f"{victim.id}.json",
        records / f"{NEW}.json",
        bad / "runs" / NEW,
        records / f"{run.id}.json",
    ]
    before, spec = snapshot(two_servers.watched, but), run_json(victim)
    number_of_calls = len(two_servers.script.asked)
    figures: dict[str, tuple[int, float]] = {}
    with watched_engine(two_servers):
        for kind, told, act in lies_by_message(two_servers, victim, run, bad):
            figures[kind] = two_servers.send_lies(kind, told, act)
            print(f"{kind}: {figures[kind][0]} lies in {figures[kind][1]:.1f} s", flush=True)
            two_servers.reconnect()
            assert snapshot(two_servers.watched, but) == before, kind
            assert run_json(victim) == spec, kind
            assert honest_run_is_active(two_servers, run), kind
    worst, peak = max(two_servers.latency), max(two_servers.memory) - two_servers.memory[0]
    print(f"home engine: slowest answer {worst:.2f} s, grew by {peak / 2**20:.0f} MiB")
    assert all(count for count, _ in figures.values()), figures
    assert not ESCAPED.exists()
    assert SECRET.encode() not in two_servers.hostile.received
    assert not two_servers.evil_provider.asked
    assert {h.get("authorization") for h in two_servers.script.headers} == {f"Bearer {SECRET}"}
    assert len(two_servers.script.asked) > number_of_calls, (
        "the honest run's judge was not called meanwhile"
    )
    assert any(one.code == "home_request.refused" for one in two_servers.notices), (
        "no notice was raised"
    )
    assert peak < MOST_MEMORY
    stop_and_compare(two_servers, run)


def honest_run_is_active(two_servers: TwoServers, run: RunSummary) -> bool:
    view = two_servers.honest.view(NAME)
    state = two_servers.home.call(lambda client: client.run(run.id)).state
    return view.state == "connected" and state == "running"


def stop_and_compare(two_servers: TwoServers, run: RunSummary) -> None:
    """Stop the honest run: it must be complete and equal to the copy on its server."""
    two_servers.home.call(lambda client: client.command(run.id, Command(action="stop_after_step")))
    events = two_servers.home.wait(run)
    assert events[-1].kind == "run.stopped"  # type: ignore[union-attr]
    page = two_servers.home.call(
        lambda c: c.trajectories(run.id, TrajectoryQuery(state="unscored"))
    )
    print(f"honest run: {two_servers.home.call(lambda c: c.run(run.id)).step} steps")
    assert page.total == 0
    until(lambda: not two_servers.honest.view(NAME).behind)
    two_servers.honest.assert_mirrored(run)


def run_json(run: RunSummary) -> bytes:
    return (Path(run.path) / "run.json").read_bytes()


def lies_by_message(
    two_servers: TwoServers, victim: RunSummary, honest: RunSummary, bad: Path
) -> Iterator[tuple[str, Iterator[Lie], Callable[[], None] | None]]:
    """Yield (kind of message, lies, action that makes the home engine request it)."""
    content = b"print('owned')\n"
    digest = hashlib.sha256(content).hexdigest()

    def fetch() -> None:
        drain_stream(two_servers, lambda client: client.fetch_checkpoint(victim.id, 1))

    def start() -> None:
        two_servers.start(bad)

    def start_another() -> None:
        two_servers.start(bad, overrides={"model.name": "nobody/nothing"})

    true = two_servers.home.call(lambda client: client.run(victim.id)).model_dump_json().encode()
    info = two_servers.home.call(lambda client: client.info()).model_dump_json().encode()
    ids = [honest.id, NEW, "../../x", victim.id, ""]
    starts = [Lie(json.dumps(json.loads(true) | {"id": one}).encode(), status=200) for one in ids]
    runs = [
        Lie(json.dumps([json.loads(true) | change]).encode())
        for change in (
            {"id": "../../../x", "project_path": "/x/" + Path(victim.project_path).name},
            {"id": honest.id},
            {"id": NEW, "state": "finished"},
            {"state": "finished", "changed_at": 1e308},
            {"path": "/etc"},
        )
    ]
    manifest = json.dumps({"files": [{"path": "a", "bytes": 1, "sha256": digest}]}).encode()
    url, true_url = two_servers.evil_provider.url, two_servers.script.url
    yield "errands", false_answers.errands([victim.id, *ids[:2]], url, true_url), None
    yield "lease", false_answers.general(b'{"seconds": 60.0}'), None
    yield "info", false_answers.general(info), None
    yield "runs", chain(runs, false_answers.general(b"[" + true + b"]")), None
    yield "changes", false_answers.pages(b"x" * 1000), None
    yield "ticks", false_answers.ticks(), None
    yield (
        "files",
        chain(false_answers.files(content, digest), false_answers.general(manifest)),
        fetch,
    )
    yield "file", chain((Lie(content), Lie(b"", endless=content), Lie(b"", status=500))), fetch
    yield "models", false_answers.general(b'[{"name":"a","title":"a","path":"/a"}]'), start_another
    missing = [Lie(json.dumps(one).encode()) for one in MISSING]
    yield "missing", chain(missing, false_answers.general(b'{"sha256":[],"bytes":0}')), start
    yield "commit", false_answers.general(b'{"path":"/a","changed":0,"removed":0}'), start
    yield "start", chain(starts, islice(false_answers.general(true), 8)), start


MISSING = (
    {"sha256": ["../../x"], "bytes": 1},
    {"sha256": ["0" * 64] * 10, "bytes": 1},
    {"sha256": ["0" * 64], "bytes": -1},
)


def drain_stream(two_servers: TwoServers, call: Callable) -> None:  # type: ignore[type-arg]
    async def drain(client) -> None:  # type: ignore[no-untyped-def]
        async for _ in call(client):
            pass

    two_servers.home.call(drain)
