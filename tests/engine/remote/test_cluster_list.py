"""List of clusters: read, add, change, remove; addresses that are not encrypted are refused."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.requests.clusters import ClusterSpec
from engine.remote.cluster_list import (
    cluster_list_file,
    find_cluster,
    put_cluster,
    read_clusters,
    remove_cluster,
)
from engine.remote.server import refuse_cluster
from engine.runtime.paths import ROOT

HOSTED = ClusterSpec(name="hosted", address="https://tinker.example/services/tinker-prod")
LOCAL = ClusterSpec(name="local", address="http://127.0.0.1:8000", client="tinker-json")


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def test_clusters_are_added_changed_and_removed() -> None:
    assert read_clusters() == []
    put_cluster(LOCAL)
    put_cluster(HOSTED)
    assert read_clusters() == [HOSTED, LOCAL]
    changed = LOCAL.model_copy(update={"address": "http://[::1]:8001"})
    put_cluster(changed)
    assert read_clusters() == [HOSTED, changed]
    assert find_cluster("local") == changed
    remove_cluster("local")
    remove_cluster("local")
    assert read_clusters() == [HOSTED]
    with pytest.raises(Refused, match=r"no cluster called local.*atelier clusters add"):
        find_cluster("local")


def test_file_is_readable_by_its_owner_alone() -> None:
    put_cluster(HOSTED)
    file = cluster_list_file()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(one.name for one in file.parent.iterdir()) == [
        "clusters.json", "clusters.json.lock",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "address",
    [
        "http://gpu.example:8000", "http://10.0.0.7", "http://localhost.example",
        "http://127.0.0.1.nip.io:8000", "http://0.0.0.0:8000", "http://[fe80::1]",
    ],
)  # fmt: skip
def test_address_without_encryption_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"not encrypted.*https://, or an SSH tunnel"):
        put_cluster(ClusterSpec(name="plain", address=address))
    assert read_clusters() == []


def test_edited_file_cannot_name_such_an_address_either() -> None:
    put_cluster(HOSTED)
    file = cluster_list_file()
    file.write_text(file.read_text().replace("https://", "http://"))
    with pytest.raises(ConfigError, match="not encrypted"):
        find_cluster("hosted")


@pytest.mark.parametrize(
    "address", ["http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000/v1"]
)
def test_loopback_needs_no_encryption(address: str) -> None:
    put_cluster(ClusterSpec(name="tunnel", address=address))
    assert find_cluster("tunnel").address == address


@pytest.mark.parametrize("address", ["https://key@host", "host:80", "https://h/?key=x", "ftp://h"])
def test_address_is_a_url_without_credentials(address: str) -> None:
    with pytest.raises(ValidationError, match="is not a URL"):
        ClusterSpec(name="odd", address=address)


def test_damaged_file_is_reported_and_kept() -> None:
    put_cluster(HOSTED)
    file = cluster_list_file()
    file.write_text("{")
    for attempt in (read_clusters, lambda: put_cluster(LOCAL), lambda: remove_cluster("hosted")):
        with pytest.raises(Refused, match="list of clusters cannot be read"):
            attempt()
    assert file.read_text() == "{"


def test_run_on_a_server_cannot_use_a_cluster() -> None:
    refuse_cluster(ProjectConfig(), "box")
    config = ProjectConfig.model_validate({"backend": {"cluster": "hosted"}})
    with pytest.raises(ConfigError, match="A run on box cannot use the cluster hosted") as refused:
        refuse_cluster(config, "box")
    assert refused.value.problem.where == "backend.cluster"


PUTTING = """
import sys
from engine.protocol.requests.clusters import ClusterSpec
from engine.remote.cluster_list import put_cluster
for number in range(20):
    put_cluster(ClusterSpec(name=f"{sys.argv[1]}{number}", address="https://tinker.example"))
"""


def test_two_engines_lose_no_change_of_each_other() -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", PUTTING, letter], cwd=ROOT) for letter in "ab"
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert len(read_clusters()) == 40
