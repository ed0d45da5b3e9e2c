"""Clusters over a real engine: the list, keys that stay in memory, runs that name a cluster."""

import contextlib
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.protocol.problems import Refused
from engine.protocol.requests.clusters import ClusterList, ClusterSpec
from engine.protocol.requests.runs import StartRun
from tests.engine_http.conftest import ROOT, Engine, start_engine, stop_engine
from tests.support.engine_starter import run_command

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


@pytest.mark.long
def test_cluster_of_an_active_run_is_neither_removed_nor_changed(
    real_cache: None, own_engine: Engine, project: Path
) -> None:
    engine = own_engine
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


def test_clusters_are_added_listed_and_removed_in_the_terminal(workspace: Path) -> None:
    def clusters(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_command("clusters", *arguments, "--workspace", str(workspace), timeout_s=100)

    assert "atelier clusters add NAME --address URL" in clusters("list").stdout
    for name, address, code, words in (
        ("plain", "http://gpu.example", 1, "not encrypted"),
        ("bad name", "https://gpu.example", 2, "The name must begin with"),
        ("odd", "gpu.example", 2, "The base URL must begin with https://"),
    ):
        refused = clusters("add", name, "--address", address)
        assert refused.returncode == code
        assert words in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
    added = clusters("add", "hosted", "--address", HOSTED.address, "--client", "tinker-json")
    assert (added.returncode, "atelier clusters check hosted" in added.stdout) == (0, True)
    assert HOSTED.address in clusters("list").stdout
    listed = ClusterList.model_validate_json(clusters("list", "--json").stdout)
    assert [(one.spec.name, one.spec.client) for one in listed.clusters] == [
        ("hosted", "tinker-json")
    ]
    asked = clusters("check", "hosted")
    assert asked.returncode == 2
    assert "Set the variable TINKER_API_KEY, or run the command in a terminal." in asked.stderr
    unknown = clusters("check", "other")
    assert (unknown.returncode, "no cluster called other" in unknown.stderr) == (1, True)
    assert clusters("remove", "hosted").returncode == 0
    assert "no cluster called hosted" in clusters("remove", "hosted").stderr


def test_training_on_a_cluster_needs_its_key_and_a_cluster(project: Path, workspace: Path) -> None:
    def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_command(*arguments, "--workspace", str(workspace), timeout_s=100)

    for words in (("train",), ("train", "--baseline"), ("sft",)):
        chosen = (words[0], str(project), *words[1:], "--cluster", "hosted")
        unknown = command(*chosen)
        assert unknown.returncode != 0
        assert "no cluster called hosted" in unknown.stderr
        both = command(*chosen, "--host", "gpu")
        assert both.returncode == 2
        assert "--host: not allowed with argument --cluster" in both.stderr
    command("clusters", "add", "hosted", "--address", HOSTED.address)
    assert "There is no API key for hosted." in command(*chosen).stderr
    command("clusters", "remove", "hosted")


def test_key_is_typed_without_being_shown(workspace: Path, project: Path) -> None:
    """The run itself is refused before anything is sent to the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TINKER_API_KEY", raising=False)
        engine = start_engine(workspace)
    try:
        engine.call(lambda client: client.put_cluster(HOSTED))
        words = ("train", str(project), "--workspace", str(workspace), "--cluster", "hosted")
        shown = type_in_terminal((*words, "--set", "train.temperature=0.7"), f"{CANARY}\n")
        assert "API key of hosted:" in shown
        assert "train.temperature" in shown
        assert CANARY not in shown
        assert engine.call(lambda client: client.clusters()).clusters[0].has_key
    finally:
        stop_engine(engine)


def type_in_terminal(arguments: tuple[str, ...], typed: str) -> str:
    """Run a command in a terminal, type at its first question, and return all that is shown."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "engine", *arguments]
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
                               start_new_session=True)  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal closes with the command
        while part := os.read(ours, 4096):
            shown += part
            if typed and b": " in shown:
                os.write(ours, typed.encode())
                typed = ""
    os.close(ours)
    process.wait(timeout=30)
    return shown.decode()


def test_setup_checks_the_chosen_cluster(engine: Engine, project: Path) -> None:
    def checks(**values: object) -> dict[str, tuple[str, str]]:
        path = str(project)
        found = engine.call(lambda client: client.model_checks(path, dict(values)))
        return {one.name: (one.state, f"{one.words} {one.hint}".strip()) for one in found}

    assert "Cluster" not in checks()
    chosen = {"backend.cluster": "hosted"}
    state, words = checks(**chosen)["Cluster"]
    assert (state, "no cluster called hosted" in words) == ("bad", True)
    engine.call(lambda client: client.put_cluster(HOSTED))
    good = ("good", "hosted samples and trains at tinker.example.")
    assert checks(**chosen)["Cluster"] == good
    for values, key in (
        ({"train.temperature": 0.7}, "train.temperature"),
        ({"train.algorithm.entropy": 0.01}, "train.algorithm.entropy"),
        (
            {
                "train.algorithm.credit": {"kind": "value"},
                "train.algorithm.advantage": {"kind": "reward"},
            },
            "train.algorithm.credit",
        ),
    ):
        state, words = checks(**chosen, **values)["Cluster"]
        assert (state, key in words) == ("bad", True), words
        with pytest.raises(Refused, match="luster"):
            engine.train(project, **chosen, **values)
    assert not (project / "runs").exists()
