"""Clusters over a real engine: the list, keys that stay in memory, runs that name a cluster."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.protocol.problems import Refused
from engine.protocol.requests.clusters import ClusterSpec
from engine.protocol.requests.runs import StartRun
from tests.engine_http.conftest import Engine, start_engine, stop_engine

CANARY = "tml-canary-4711-0815"
HOSTED = ClusterSpec(name="hosted", address="https://tinker.example/services/prod")


@pytest.fixture(autouse=True)
def empty_list(engine: Engine) -> Iterator[None]:
    """Every test begins and ends without clusters."""
    yield
    for view in engine.call(lambda client: client.clusters()).clusters:
        engine.call(lambda client, name=view.spec.name: client.remove_cluster(name))


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_list_is_kept_for_the_next_engine(engine: Engine, tmp_path: Path) -> None:
    listed = engine.call(lambda client: client.put_cluster(HOSTED))
    assert [view.spec for view in listed.clusters] == [HOSTED]
    changed = HOSTED.model_copy(update={"client": "tinker-json"})
    engine.call(lambda client: client.put_cluster(changed))
    (tmp_path / "other").mkdir()
    other = start_engine(tmp_path / "other")
    try:
        [view] = other.call(lambda client: client.clusters()).clusters
        assert (view.spec, view.has_key, view.report, view.problem) == (changed, False, None, None)
    finally:
        stop_engine(other)
    assert engine.call(lambda client: client.remove_cluster("hosted")).clusters == []
    with pytest.raises(Refused, match="no cluster called hosted"):
        engine.call(lambda client: client.remove_cluster("hosted"))
    with pytest.raises(Refused, match="no cluster called hosted"):
        engine.call(lambda client: client.check_cluster("hosted"))


def test_address_without_encryption_is_refused(engine: Engine) -> None:
    plain = ClusterSpec(name="plain", address="http://gpu.example:8000")
    with pytest.raises(Refused, match="not encrypted") as refused:
        engine.call(lambda client: client.put_cluster(plain))
    assert refused.value.problem.code == "cluster.not_encrypted"
    assert engine.call(lambda client: client.clusters()).clusters == []


def test_key_stays_in_memory(engine: Engine, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine.call(lambda client: client.put_cluster(HOSTED))
    engine.call(lambda client: client.lend_cluster_key("hosted", CANARY))
    [view] = engine.call(lambda client: client.clusters()).clusters
    assert view.has_key
    for bad in (f"{CANARY} x", f"{CANARY}\r\nX-Other: 1", f"{CANARY}é", CANARY * 100):
        with pytest.raises(Refused) as refused:
            engine.call(lambda client, key=bad: client.lend_cluster_key("hosted", key))
        assert CANARY not in refused.value.problem.model_dump_json()
    with pytest.raises(Refused, match="no cluster called other"):
        engine.call(lambda client: client.lend_cluster_key("other", CANARY))
    assert "hosted" in (home.parent / "xdg" / "data" / "atelier" / "clusters.json").read_text()
    written = [file for file in home.parent.rglob("*") if file.is_file()]
    assert [file for file in written if CANARY.encode() in file.read_bytes()] == []
    process = psutil.Process(engine.process.pid)
    for one in [process, *process.children(recursive=True)]:
        assert CANARY not in " ".join(one.cmdline())
        if os.geteuid() == 0:  # the engine hides its environment from other processes of its user
            assert CANARY not in str(one.environ())
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err


def test_key_is_forgotten_where_it_could_go_elsewhere(engine: Engine) -> None:
    def has_key() -> bool:
        return engine.call(lambda client: client.clusters()).clusters[0].has_key

    engine.call(lambda client: client.put_cluster(HOSTED))
    engine.call(lambda client: client.lend_cluster_key("hosted", CANARY))
    engine.call(
        lambda client: client.put_cluster(HOSTED.model_copy(update={"client": "tinker-json"}))
    )
    assert has_key()
    elsewhere = HOSTED.model_copy(update={"address": "https://other.example"})
    engine.call(lambda client: client.put_cluster(elsewhere))
    assert not has_key()
    engine.call(lambda client: client.lend_cluster_key("hosted", CANARY))
    engine.call(lambda client: client.lend_cluster_key("hosted", ""))
    assert not has_key()
    engine.call(lambda client: client.lend_cluster_key("hosted", CANARY))
    engine.call(lambda client: client.remove_cluster("hosted"))
    engine.call(lambda client: client.put_cluster(HOSTED))
    assert not has_key()


def test_run_on_an_unknown_cluster_is_refused_before_it_starts(
    engine: Engine, project: Path
) -> None:
    for kind in ("train", "baseline"):
        request = StartRun(
            project=str(project), kind=kind, overrides={"backend.cluster": "nowhere"}
        )
        with pytest.raises(Refused, match=r"no cluster called nowhere.*`atelier clusters add`"):
            engine.call(lambda client, request=request: client.start_run(request))
    assert not (project / "runs").exists()


def test_cluster_of_an_active_run_is_neither_removed_nor_changed(
    engine: Engine, project: Path
) -> None:
    with silent_server() as address:
        spec = ClusterSpec(name="silent", address=address)
        engine.call(lambda client: client.put_cluster(spec))
        run = engine.train(project, **{"backend.cluster": "silent", "train.steps": 500})
        with pytest.raises(Refused, match=f"{run.name} of letters is using silent"):
            engine.call(lambda client: client.remove_cluster("silent"))
        other = spec.model_copy(update={"address": "https://other.example"})
        with pytest.raises(Refused, match="is using silent"):
            engine.call(lambda client: client.put_cluster(other))
        engine.call(lambda client: client.put_cluster(spec))
        [view] = engine.call(lambda client: client.clusters()).clusters
        assert view.spec == spec
        engine.stop_runs(project.parent)
    assert engine.call(lambda client: client.remove_cluster("silent")).clusters == []
