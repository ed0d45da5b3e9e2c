"""A disk that fills up in the middle of a run: said clearly, nothing lost, goes on afterwards."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine_http.conftest import ROOT

SIZE_MB = 280


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """A command prefix: what follows runs where `tmp_path / "disk"` is a small file system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size={SIZE_MB}m tmpfs {disk} && exec "$@"'
    prefix = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system of their own")
    return prefix


def test_a_disk_that_fills_up(small_disk: list[str], tmp_path: Path, tiny_model: Path) -> None:
    argv = [sys.executable, "-m", "tests.engine_http.full_disk"]
    folder = str(tmp_path / "disk")
    done = subprocess.run(
        [*small_disk, *argv, folder, str(tiny_model)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["failed"]["code"] == "store.disk_full"
    assert "Free some space, then resume" in said["failed"]["hint"]
    assert said["label_on_full"] == "store.disk_full"
    assert said["label_after"] == ""
    assert (said["lost"], said["left"], said["steps_in_order"]) == (0, [], True)
    assert said["state"] == "finished"
