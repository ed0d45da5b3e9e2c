"""Disk that fills up during a run: reported, nothing lost, resumable."""

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
    """Return a command prefix: the command runs with a small file system at `tmp_path / "disk"`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size={SIZE_MB}m tmpfs {disk} && exec "$@"'
    prefix = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system of their own")
    return prefix


def test_full_disk_fails_run_which_resumes_after_cleanup(
    small_disk: list[str], tmp_path: Path, tiny_model: Path
) -> None:
    argv = [sys.executable, "-m", "tests.engine_http.full_disk"]
    folder = str(tmp_path / "disk")
    done = subprocess.run(
        [*small_disk, *argv, folder, str(tiny_model)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["failed"]["code"] == "store.disk_full"
    assert "Free some space, then resume" in outcome["failed"]["hint"]
    assert outcome["label_on_full"] == "store.disk_full"
    assert outcome["label_after"] == ""
    assert (outcome["lost"], outcome["left"], outcome["steps_in_order"]) == (0, [], True)
    assert outcome["state"] == "finished"
