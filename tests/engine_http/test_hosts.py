"""Home engine and remote server over real SSH: runs start and continue there, and are mirrored
here."""

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine.environments import python_of
from engine.protocol.events.run import LogWritten
from engine.protocol.problems import Refused
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.exports import ExportCheckpoint
from engine.protocol.requests.remote import ActOnHost, AddHost, HostView, Moved, SendRun
from engine.protocol.requests.runs import Command, StartRun, TrajectoryQuery
from engine.storage.run_folder.images import ImageStore
from engine.trust.addresses import confirm_address
from tests.engine.judge.scripted import Script, provider
from tests.engine_http.conftest import (
    STAYING,
    Engine,
    make_project,
    start_engine,
    stop_engine,
    until,
)
from tests.engine_http.test_judge import JUDGE, SECRET, UNREWARDED, letters
from tests.engine_http.test_tracking import agent_spans, stored_trajectories
from tests.support.otlp_collector import run_collector
from tests.support.remote_engine import (
    NAME,
    authorize_user,
    link_engine,
    link_environments,
    spec_of,
)
from tests.support.ssh_server import FarSide

pytestmark = pytest.mark.long
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
TABLES = ("events", "trajectories", "groups", "calls", "verdicts", "labels", "checkpoints")


@dataclass
class ServerPair:
    """Home engine and remote server."""

    home: Engine
    far: FarSide
    base: Path

    def view(self, name: str = NAME) -> HostView:
        listing = self.home.call(lambda client: client.hosts())
        return next(one for one in listing.hosts if one.spec.name == name)

    def act(self, action: str) -> None:
        body = ActOnHost.model_validate({"action": action})
        self.home.call(lambda client: client.act_on_host(NAME, body))

    def until(self, state: str, timeout_s: float = 40) -> HostView:
        until(lambda: self.view().state == state, timeout_s)
        return self.view()

    def start(self, project: Path, **more: object) -> RunSummary:
        request = StartRun.model_validate({"project": str(project), "host": NAME, **more})
        return self.home.call(lambda client: client.start_run(request))

    def remote_folder(self, run: RunSummary) -> Path:
        """Return the run's folder on the server."""
        return next((self.base / "workspace").glob(f"*/runs/{run.id}"))

    def assert_mirrored(self, run: RunSummary) -> None:
        """Check that every row of the mirror equals the row on the server."""
        local, remote_folder = Path(run.path) / "run.db", self.remote_folder(run) / "run.db"
        for table in TABLES:
            assert table_rows(local, table) == table_rows(remote_folder, table), table

    def processes(self) -> list[psutil.Process]:
        """Return the processes on the server."""
        return [
            one
            for one in psutil.process_iter()
            if any(str(self.base) in word for word in _words(one))
        ]


def table_rows(file: Path, table: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
    finally:
        db.close()


def _words(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), process.environ().get("XDG_RUNTIME_DIR", "")]
    except psutil.Error:
        return []


def start_home(home: Path, environments: Path, person: Path, far: FarSide) -> Engine:
    """Start a home engine with installed `environments`, for a user who can log in to `far`."""
    authorize_user(person, far)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(environments.parents[1]))
        patch.setenv("HOME", str(person))
        return start_engine(home)


@contextlib.contextmanager
def server_pair(home: Path, far: FarSide, person: Path) -> Iterator[ServerPair]:
    """Home engine, and a server in its list with an engine of this checkout; both are ended."""
    base = far.home / ".atelier-engine"
    link_engine(base)
    environments = link_environments(base)
    engine = start_home(home, environments, person, far)
    both = ServerPair(engine, far, base)
    engine.call(lambda client: client.add_host(AddHost(spec=spec_of(far))))
    yield both
    stop_engine(engine)
    for process in both.processes():
        process.terminate()
    until(lambda: not both.processes())


@pytest.fixture(scope="module")
def pair(
    home: Path, real_cache: None, ssh_server: FarSide, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerPair]:
    """Home engine that is connected to a server with an engine of this checkout."""
    with server_pair(home, ssh_server, tmp_path_factory.mktemp("person")) as both:
        both.act("connect")
        both.until("connected")
        yield both


@pytest.fixture
def may_stay(pair: ServerPair) -> Callable[[psutil.Process], bool]:
    """Allow the server's engine, and the judge worker of the home engine, to stay."""
    return lambda process: (
        any(word in " ".join(_words(process)) for word in STAYING)
        or any(str(pair.base) in word for word in _words(process))
    )


@pytest.fixture
def project(home: Path, tiny_model: Path, request: pytest.FixtureRequest) -> Path:
    return make_project(home / request.node.name.replace("[", "-").strip("]"), tiny_model)


@pytest.fixture
def script() -> Iterator[Script]:
    with provider(Script(grade=letters)) as script:
        yield script


@pytest.fixture
def judged_project(
    home: Path, tiny_model: Path, script: Script, request: pytest.FixtureRequest
) -> Path:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    project = make_project(home / name, tiny_model, UNREWARDED, JUDGE.format(url=script.url))
    (project / "rubric.md").write_text("More letters are better.\n")
    confirm_address("openai", script.url)
    return project


def test_remote_run_is_mirrored(pair: ServerPair, project: Path) -> None:
    run = pair.start(project)
    assert run.host == NAME
    pair.home.wait(run)
    done = pair.home.call(lambda client: client.run(run.id))
    assert (done.state, done.step, done.host) == ("finished", 3, NAME)
    until(lambda: not pair.view().behind)
    pair.assert_mirrored(run)
    page = pair.home.call(lambda client: client.trajectories(run.id, TrajectoryQuery()))
    assert page.total == done.trajectories > 0
    assert not (Path(run.path) / "checkpoints").exists()
    image = ImageStore(pair.remote_folder(run)).add(PNG)
    assert not (Path(run.path) / "images").exists()
    for _ in range(2):  # from the server, then from here
        assert pair.home.call(lambda client: client.image(run.id, image)) == PNG
        assert ImageStore(Path(run.path)).find(image).read_bytes() == PNG
    with pytest.raises(Refused, match="has no image"):
        pair.home.call(lambda client: client.image(run.id, "0" * 64))


def test_broken_tunnel_loses_no_event(pair: ServerPair, project: Path) -> None:
    """The run is not affected, and every event arrives once and in order."""
    run = pair.start(project, overrides={"train.steps": 8})
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.7):
            pair.far.drop()
            pair.act("connect")

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        time.sleep(6)
    finally:
        stop.set()
        cutter.join()
    events = pair.home.wait(run)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.kind for event in events]  # type: ignore[union-attr]
    assert kinds.count("step.finished") == 8
    assert "worker.restarted" not in kinds
    pair.until("connected")
    until(lambda: not pair.view().behind)
    pair.assert_mirrored(run)


def test_labels_and_commands_reach_remote_run(pair: ServerPair, project: Path) -> None:
    run = pair.start(project, overrides={"train.steps": 200})
    pair.home.wait_for(run, "step.finished")
    stop = Command(action="stop_after_step", key="once")
    pair.home.call(lambda client: client.command(run.id, stop))
    events = pair.home.wait(run)
    assert events[-1].kind == "run.stopped"  # type: ignore[union-attr]
    page = pair.home.call(lambda client: client.trajectories(run.id, TrajectoryQuery(step=1)))
    first = page.items[0]
    label = Label(
        id="l1",
        split=first.split,
        step=first.step,
        group=first.group,
        words=(Word(kind="score", trajectory_id=first.id, value=1.0),),
    )
    pair.home.call(lambda client: client.add_label(run.id, label))
    until(lambda: bool(pair.home.call(lambda client: client.labels(run.id))))
    until(lambda: not pair.view().behind)
    pair.assert_mirrored(run)


def test_disconnected_server_rejects_commands_but_run_is_readable(
    pair: ServerPair, project: Path
) -> None:
    run = pair.start(project, overrides={"train.steps": 1})
    pair.home.wait(run)
    pair.act("disconnect")
    with pytest.raises(Refused, match="box is not connected"):
        pair.home.call(lambda client: client.command(run.id, Command(action="resume")))
    assert pair.home.call(lambda client: client.run(run.id)).state == "finished"
    pair.act("connect")
    pair.until("connected")


def test_killed_remote_engine_is_restarted_and_run_resumed(pair: ServerPair, project: Path) -> None:
    run = pair.start(project, overrides={"train.steps": 6, "train.checkpoint_every": 1})
    pair.home.wait_for(run, "checkpoint.saved")
    info = pair.view().info
    assert info is not None
    os.kill(info.pid, signal.SIGKILL)
    until(lambda: (now := pair.view()).info is not None and now.info.pid != info.pid, 40)
    pair.home.call(lambda client: client.command(run.id, Command(action="resume", key="again")))
    events = pair.home.wait(run)
    assert events[-1].kind == "run.finished"  # type: ignore[union-attr]
    finished = [e.step for e in events if e.kind == "step.finished"]  # type: ignore[union-attr]
    assert sorted(set(finished)) == [1, 2, 3, 4, 5, 6]
    until(lambda: not pair.view().behind)
    pair.assert_mirrored(run)


def test_checkpoints_and_runs_are_moved_between_machines(
    pair: ServerPair, project: Path, tmp_path: Path
) -> None:
    run = pair.start(project, overrides={"train.steps": 2})
    pair.home.wait(run)
    folder = Path(run.path)
    assert last_item(pair, lambda client: client.fetch_checkpoint(run.id, 2)).kind == "moved"
    adapter = "checkpoints/step-000002/adapter/adapter_model.safetensors"
    assert (folder / adapter).read_bytes() == (pair.remote_folder(run) / adapter).read_bytes()

    out = tmp_path / "exported"
    request = ExportCheckpoint(format="adapter", out=str(out))
    report = last_item(pair, lambda client: client.export(run.id, 2, request))
    assert report.kind == "report"
    assert report.path == str(out)
    assert (out / "adapter_model.safetensors").exists()
    assert not (pair.remote_folder(run) / "exports").exists()

    remote_folder = pair.remote_folder(run)
    image = ImageStore(remote_folder).add(PNG)
    inputs = ImageStore(remote_folder).inputs(image, "0" * 16)
    inputs.parent.mkdir()
    inputs.write_bytes(b"made again")
    assert isinstance(last_item(pair, lambda client: client.bring_home(run.id)), Moved)
    assert ImageStore(folder).find(image).read_bytes() == PNG
    assert not (folder / "images" / "inputs").exists()
    assert not remote_folder.exists()
    assert pair.home.call(lambda client: client.run(run.id)).host == ""
    longer = Command(action="extend", steps=3, key="longer")
    pair.home.call(lambda client: client.command(run.id, longer))
    assert pair.home.wait(run)[-1].kind == "run.finished"  # type: ignore[union-attr]

    sent = last_item(pair, lambda client: client.send_run(run.id, SendRun(host=NAME)))
    assert isinstance(sent, Moved)
    assert ImageStore(pair.remote_folder(run)).find(image).read_bytes() == PNG
    assert pair.home.call(lambda client: client.run(run.id)).host == NAME
    longer = Command(action="extend", steps=4, key="even longer")
    pair.home.call(lambda client: client.command(run.id, longer))
    until(lambda: pair.home.call(lambda client: client.run(run.id)).steps == 4)  # mirrored
    events = pair.home.wait(run)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    until(lambda: not pair.view().behind)
    pair.assert_mirrored(run)


def test_remote_processes_listen_on_loopback_only(pair: ServerPair) -> None:
    listening = [
        connection.laddr.ip
        for process in pair.processes()
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}


@pytest.mark.parametrize("lend", [False, True], ids=["at home", "lent"])
def test_judge_key_is_never_written_on_the_server(
    pair: ServerPair, judged_project: Path, script: Script, lend: bool
) -> None:
    """A key kept at home is not even sent; a lent key stays in the engine's memory."""
    pair.home.call(lambda client: client.lend_keys({"openai": SECRET}))
    run = pair.start(judged_project, lend_keys=lend, overrides={"train.steps": 2})
    pair.home.wait_for(run, "group.judged")
    for process in pair.processes():
        with contextlib.suppress(psutil.Error):
            assert SECRET not in " ".join([*process.cmdline(), *process.environ().values()])
    assert pair.home.wait(run)[-1].kind == "run.finished"  # type: ignore[union-attr]
    assert {h["authorization"] for h in script.headers} == {f"Bearer {SECRET}"}
    for file in pair.far.home.rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert SECRET.encode() not in file.read_bytes(), file
    judge_workers = [
        one for one in pair.processes() if "engine.judge.providers.worker" in _words(one)
    ]
    assert not judge_workers
    until(lambda: not pair.view().behind)
    pair.assert_mirrored(run)


def test_judging_waits_for_home_connection(
    pair: ServerPair, judged_project: Path, script: Script
) -> None:
    """Only the home engine has the key; nothing is lost or unscored."""
    pair.home.call(lambda client: client.lend_keys({"openai": SECRET}))
    run = pair.start(judged_project, overrides={"train.steps": 3})
    pair.home.wait_for(run, "step.finished")
    pair.act("disconnect")
    time.sleep(1)
    number_of_calls = len(script.asked)
    time.sleep(2)
    assert len(script.asked) == number_of_calls
    pair.act("connect")
    events = pair.home.wait(run)
    assert events[-1].kind == "run.finished"  # type: ignore[union-attr]
    page = pair.home.call(lambda c: c.trajectories(run.id, TrajectoryQuery(state="unscored")))
    assert page.total == 0


def test_server_serves_one_home_at_a_time(
    pair: ServerPair, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A second home gets an error, and may take over the server."""
    person = tmp_path / "person"
    authorize_user(person, pair.far)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(person))
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        second = start_engine(tmp_path / "elsewhere")
    other = ServerPair(second, pair.far, pair.base)
    try:
        second.call(lambda client: client.add_host(AddHost(spec=spec_of(pair.far))))
        other.act("connect")
        refused = other.until("stopped").problem
        assert refused is not None
        assert refused.code == "host.other_home"
        other.act("take_over")
        other.until("connected")
        lost = pair.until("stopped").problem
        assert lost is not None
        assert lost.code == "host.other_home"
    finally:
        stop_engine(second)
    pair.act("take_over")
    pair.until("connected")


def last_item(pair: ServerPair, call: Callable) -> object:  # type: ignore[type-arg]
    async def drain(client) -> object:  # type: ignore[no-untyped-def]
        return [one async for one in call(client)][-1]

    return pair.home.call(drain)


def test_remote_run_is_tracked_from_home(
    pair: ServerPair, workspace: Path, tiny_model: Path, real_cache: None
) -> None:
    """Tracker client and keys are only on the home machine."""
    python = python_of("otel")
    with run_collector() as collector:
        toml = f'[track.otel]\non = true\nendpoint = "{collector.url}"'
        project = make_project(workspace / "told", tiny_model, toml=toml)
        pair.home.call(lambda client: client.lend_tracker_keys({"otel": f"x-key={SECRET}"}))
        run = pair.start(project, overrides={"train.steps": 2})
        events = pair.home.wait(run)
        assert events[-1].kind == "run.finished"  # type: ignore[union-attr]
        assert not [e for e in events if isinstance(e, LogWritten) and e.source == "track"]
        until(lambda: tracker_state(pair, run) == "in_step")
        spans = agent_spans(collector.spans(python))
        assert {span["attributes"]["gen_ai.conversation.id"] for span in spans} == {
            f"{run.id}/{one.id}" for one in stored_trajectories(run)
        }
        assert {headers["x-key"] for headers in collector.headers} == {SECRET}


def tracker_state(pair: ServerPair, run: RunSummary) -> str:
    listing = pair.home.call(lambda client: client.trackers(run.id))
    return "" if listing.sending or not listing.trackers else listing.trackers[0].state
