"""Models in training that engines of this machine have opened at clusters, in a file of the user.

A model takes one of the cluster's adapter slots until it is unloaded; what a client process that
was killed has left is unloaded by the next one.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import psutil

from engine.protocol.base import Value
from engine.runtime.files import replace_file
from engine.runtime.locks import take_lock


class OpenModel(Value):
    place: str
    """Place of the cluster (`ClusterSpec.place`)."""
    model_id: str
    pid: int
    """Client process that opened it."""
    started: float
    """Start time of that process, in seconds since the epoch."""

    @property
    def left(self) -> bool:
        """Whether its client process has ended."""
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > 1
        except psutil.NoSuchProcess:
            return True


def opened(place: str, model_id: str, client: psutil.Process) -> None:
    """Record a model of a client process."""
    with _list() as models:
        models.append(
            OpenModel(place=place, model_id=model_id, pid=client.pid, started=client.create_time())
        )


def closed(place: str, model_id: str) -> None:
    """Forget a model that was unloaded."""
    with _list() as models:
        models[:] = [one for one in models if (one.place, one.model_id) != (place, model_id)]


def left_at(place: str) -> list[str]:
    """Ids of the models at a cluster whose client processes have ended."""
    with _list() as models:
        return [one.model_id for one in models if one.place == place and one.left]


def list_file() -> Path:
    return Path(platformdirs.user_data_dir("atelier")) / "cluster_models.json"


@contextlib.contextmanager
def _list() -> Iterator[list[OpenModel]]:
    """Context manager that yields the list under a lock and stores it if it has changed."""
    file = list_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = take_lock(file.with_suffix(".lock"), wait_s=None)
    try:
        text = file.read_text() if file.exists() else "[]"
        models = [OpenModel.model_validate(one) for one in json.loads(text)]
        before = list(models)
        yield models
        if models != before:
            replace_file(file, json.dumps([one.model_dump() for one in models], indent=1) + "\n")
    finally:
        os.close(lock)
