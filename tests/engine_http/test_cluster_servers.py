"""SkyRL on a server of the user's: started over real SSH, reached through the tunnel, and started
again after it was killed."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from engine.protocol.events.run import RunFailed, StepFinished, WorkerRestarted
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.clusters import (
    ClusterView,
    SkyrlServer,
    SkyrlSettings,
    StartCluster,
    cluster_spec,
)
from tests.engine_http.conftest import Engine, make_project, until
from tests.engine_http.test_hosts import ServerPair, server_pair
from tests.support.remote_engine import NAME
from tests.support.ssh_server import FarSide
from tests.support.tinker_server import tinker_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
CLUSTER = "far"
READY_S = 120.0
OVERRIDES = {
    "backend.cluster": CLUSTER,
    "model.alpha": 32,
    "train.steps": 30,
    "train.checkpoint_every": 1,
    "train.validate_every": 0,
}


@pytest.fixture(scope="module")
def pair(
    home: Path, real_cache: None, ssh_server: FarSide, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerPair]:
    """Home engine, and a server with an engine of this checkout that is in the list."""
    with server_pair(home, ssh_server, tmp_path_factory.mktemp("person")) as both:
        yield both


@pytest.fixture
def may_stay() -> Callable[[psutil.Process], bool]:
    """Processes of both machines stay for the next test; `pair` ends them and looks."""
    return lambda process: True


@pytest.fixture
def skyrl(pair: ServerPair, tiny_model: Path) -> StartCluster:
    """Request that starts a small SkyRL on the server; it runs."""
    settings = SkyrlSettings(model=str(tiny_model), sequences=4)
    request = StartCluster(host=NAME, settings=settings)
    pair.home.call(lambda client: client.start_cluster(CLUSTER, request))
    until(lambda: state(pair).state == "running", READY_S)
    return request


def view(engine: Engine) -> ClusterView:
    listed = engine.call(lambda client: client.clusters()).clusters
    return next(one for one in listed if one.spec.name == CLUSTER)


def state(pair: ServerPair) -> SkyrlServer:
    return view(pair.home).server or SkyrlServer()


def servers(pair: ServerPair) -> list[psutil.Process]:
    """Processes of SkyRL on the server: its API and its engine."""
    return [one for one in pair.processes() if "launch.py" in " ".join(_words(one))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def done(engine: Engine, run: RunSummary) -> int:
    """Number of the last finished step."""
    return engine.call(lambda client: client.run(run.id)).step


def steps_of(engine: Engine, run: RunSummary) -> list[int]:
    events = engine.wait(run, 400)
    assert not [event for event in events if isinstance(event, RunFailed)]
    return sorted({event.step for event in events if isinstance(event, StepFinished)})


def test_run_survives_kills_of_skyrl_tunnel_and_remote_engine(
    pair: ServerPair, skyrl: StartCluster, home: Path, tiny_model: Path
) -> None:
    """The connection is made by the start; whatever dies is started again, and the run goes on."""
    engine = pair.home
    report = engine.call(lambda client: client.check_cluster(CLUSTER)).report
    assert report is not None
    assert [model.name.rpartition("/")[2] for model in report.models] == [tiny_model.name]
    project = make_project(home / "letters", tiny_model)
    run = engine.train(project, **OVERRIDES)
    engine.wait_for(run, "checkpoint.saved", READY_S)
    with pytest.raises(Refused, match="is using far"):
        engine.call(lambda client: client.stop_cluster(CLUSTER))

    api, *_ = servers(pair)
    api.kill()  # its engine is left, and must not go on beside the next one
    engine.wait_for(run, "worker.restarted", READY_S)
    until(lambda: state(pair).state == "running", READY_S)
    assert len({one.pid for one in servers(pair)} - {api.pid}) == 2

    until(lambda: done(engine, run) >= 3, READY_S)
    info = pair.view().info
    assert info is not None
    pair.far.drop()
    until(lambda: pair.view().state != "connected")
    pair.act("connect")
    pair.until("connected")
    os.kill(info.pid, signal.SIGKILL)
    until(lambda: (now := pair.view()).info is not None and now.info.pid != info.pid, 60)
    until(lambda: state(pair).state == "running", READY_S)
    assert steps_of(engine, run) == list(range(1, 31))
    restarts = [e for e in engine.wait(run) if isinstance(e, WorkerRestarted)]
    print(f"{len(restarts)} restarts of the client: {[one.problem.code for one in restarts]}")
    assert len(restarts) >= 2
    state_folder = pair.base / "data" / "atelier" / "skyrl" / CLUSTER
    snapshots = list(state_folder.glob("checkpoints/*/sampler_weights/*.tar.gz"))
    assert len(snapshots) <= 3  # of 30 steps: SkyRL itself deletes none


def test_only_loopback_and_private_sockets_are_used(pair: ServerPair, skyrl: StartCluster) -> None:
    engine = pair.home
    engine.call(lambda client: client.check_cluster(CLUSTER))
    listening = [
        connection.laddr
        for process in [*pair.processes(), psutil.Process(engine.process.pid)]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert state(pair).port in {address.port for address in listening}
    own = {
        connection.laddr.port
        for connection in psutil.Process(engine.process.pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert state(pair).port not in own  # the tunnel ends in a socket of this user alone


def test_other_starts_are_refused_while_one_runs(pair: ServerPair, skyrl: StartCluster) -> None:
    engine = pair.home
    assert engine.call(lambda client: client.start_cluster(CLUSTER, skyrl)).server == state(pair)
    with pytest.raises(Refused, match="already runs on this machine, as the cluster far"):
        engine.call(lambda client: client.start_cluster("other", skyrl))
    here = skyrl.model_copy(update={"host": ""})
    with pytest.raises(Refused, match="There is a cluster far already, at box"):
        engine.call(lambda client: client.start_cluster(CLUSTER, here))
    with pytest.raises(Refused, match="The cluster far is reached through box"):
        pair.act("forget")


def test_stopped_server_is_named_by_start_and_starts_again(
    pair: ServerPair, skyrl: StartCluster, home: Path, tiny_model: Path
) -> None:
    engine = pair.home
    stopped = engine.call(lambda client: client.stop_cluster(CLUSTER))
    assert stopped.server is not None
    assert stopped.server.state == "off"
    assert not servers(pair)
    run = engine.train(make_project(home / "off", tiny_model), **OVERRIDES | {"train.steps": 1})
    (failed,) = [event for event in engine.wait(run, 60) if isinstance(event, RunFailed)]
    assert "SkyRL's server of far is off" in failed.problem.message
    engine.call(lambda client: client.start_cluster(CLUSTER, skyrl))
    until(lambda: state(pair).state == "running", READY_S)


def test_other_settings_replace_the_server_and_removal_ends_it(
    pair: ServerPair, skyrl: StartCluster
) -> None:
    engine = pair.home
    before = {one.pid for one in servers(pair)}
    bad = skyrl.settings.model_copy(update={"model": "nobody/nothing"})
    with pytest.raises(Refused, match="nobody/nothing"):
        engine.call(
            lambda client: client.start_cluster(CLUSTER, StartCluster(host=NAME, settings=bad))
        )
    assert {one.pid for one in servers(pair)} == before
    other = skyrl.settings.model_copy(update={"sequences": 8})
    engine.call(
        lambda client: client.start_cluster(CLUSTER, StartCluster(host=NAME, settings=other))
    )
    until(lambda: state(pair).state == "running", READY_S)
    assert state(pair).settings == other
    assert not {one.pid for one in servers(pair)} & before
    engine.call(lambda client: client.remove_cluster(CLUSTER))
    assert not servers(pair)
    assert not engine.call(lambda client: client.clusters()).clusters


def test_model_that_cannot_be_served_fails_in_words(pair: ServerPair, home: Path) -> None:
    engine = pair.home
    settings = SkyrlSettings(model=str(home / "nothing"))
    request = StartCluster(host=NAME, settings=settings)
    with pytest.raises((Refused, ConfigError), match="nothing"):
        engine.call(lambda client: client.start_cluster("nothing", request))
    assert not servers(pair)


def test_cluster_started_by_hand_is_reached_through_the_server(pair: ServerPair) -> None:
    """The server and this machine are one here, so only a refused forwarding shows the way."""
    with tinker_server() as server:
        spec = cluster_spec("byhand", server.address, "tinker-json", host=NAME)
        pair.home.call(lambda client: client.put_cluster(spec))
        started = time.monotonic()
        found = pair.home.call(lambda client: client.check_cluster("byhand"))
        assert found.report is not None, found.problem
        assert time.monotonic() - started < 60
        pair.far.manners.forwarding = False
        try:
            pair.far.drop()
            pair.act("connect")
            found = pair.home.call(lambda client: client.check_cluster("byhand"))
            assert found.problem is not None
            assert "forward" in found.problem.message
        finally:
            pair.far.manners.forwarding = True
            pair.act("connect")
            pair.until("connected")
