"""List of clusters: one small file of the user beside the list of servers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol.addresses import is_loopback
from engine.protocol.problems import ConfigError, Refused
from engine.protocol.requests.clusters import ClusterSpec
from engine.runtime.files import PRIVATE_MODE, replace_file
from engine.runtime.locks import released, take_lock


class ClusterFile(BaseModel):
    """Content of the file."""

    model_config = ConfigDict(extra="ignore")

    schema_version: int = 1
    clusters: list[ClusterSpec] = Field(default_factory=list)


def cluster_list_file() -> Path:
    return Path(platformdirs.user_data_dir("atelier")) / "clusters.json"


def read_clusters() -> list[ClusterSpec]:
    """Clusters of the user, by name; empty if there is no file. Raises Refused if it is
    unreadable."""
    file = cluster_list_file()
    try:
        found = ClusterFile.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        raise Refused.of(
            "cluster.list_unreadable",
            "The list of clusters cannot be read.",
            "Fix the file, or move it away and add the clusters again.",
            where=str(file),
            detail=str(error),
        ) from error
    return sorted(found.clusters, key=lambda spec: spec.name)


def find_cluster(name: str) -> ClusterSpec:
    """Settings of the cluster of this name. Raises Refused if it is not in the list, ConfigError
    for an address that is not encrypted."""
    for spec in read_clusters():
        if spec.name == name:
            require_encryption(spec)
            return spec
    raise Refused.of(
        "cluster.unknown",
        f"There is no cluster called {name}.",
        "Add it in Settings → Clusters, or with `atelier clusters add`.",
        where="backend.cluster",
    )


def put_cluster(spec: ClusterSpec) -> None:
    """Add a cluster, or replace the one of the same name. Raises ConfigError for an address that is
    not encrypted, Refused if the list cannot be read or written."""
    require_encryption(spec)
    with _edited() as clusters:
        clusters[spec.name] = spec


def remove_cluster(name: str) -> None:
    """Remove a cluster from the list; no effect if it is not there. Raises Refused if the list
    cannot be read or written."""
    with _edited() as clusters:
        clusters.pop(name, None)


def require_encryption(spec: ClusterSpec) -> None:
    """Raise ConfigError for an `http://` address of another machine."""
    if spec.address.startswith("http://") and not is_loopback(spec.address):
        raise ConfigError.of(
            "cluster.not_encrypted",
            f"{spec.address} is not encrypted: tokens and API key would be readable on the way.",
            "Use https://, or an SSH tunnel and http://127.0.0.1:PORT.",
            where="address",
        )


@contextlib.contextmanager
def _edited() -> Iterator[dict[str, ClusterSpec]]:
    """Lock and yield the clusters by name; changes in the block are saved at its end."""
    file = cluster_list_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = take_lock(file.with_name(f"{file.name}.lock"), wait_s=None)
    except OSError as error:
        raise _not_written(file, error) from error
    with released(lock):
        clusters = {spec.name: spec for spec in read_clusters()}
        yield clusters
        content = ClusterFile(clusters=sorted(clusters.values(), key=lambda spec: spec.name))
        try:
            replace_file(file, content.model_dump_json(indent=1) + "\n", PRIVATE_MODE)
        except OSError as error:
            raise _not_written(file, error) from error


def _not_written(file: Path, error: OSError) -> Refused:
    return Refused.of(
        "cluster.list_unwritable",
        f"The list of clusters cannot be saved: {error.strerror}.",
        "Check the permissions and free space of its folder.",
        where=str(file),
    )
