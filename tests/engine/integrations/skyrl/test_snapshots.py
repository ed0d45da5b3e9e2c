"""Sampler snapshots of SkyRL: old ones are deleted, saved states are not."""

import os
import time
from pathlib import Path

from engine.integrations.skyrl.snapshots import delete_saved, delete_snapshots


def write(state: Path, name: str, age_s: float) -> Path:
    file = state / "checkpoints" / "model_1" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(10))
    os.utime(file, (time.time() - age_s,) * 2)
    return file


def test_newest_and_young_snapshots_and_all_states_stay(tmp_path: Path) -> None:
    old = [write(tmp_path, f"sampler_weights/step-{n}.tar.gz", 5000 - n) for n in range(5)]
    state = write(tmp_path, "state-1.tar.gz", 9000)
    assert delete_snapshots(tmp_path, kept=3, young_s=900) == 20
    assert [file.exists() for file in old] == [False, False, True, True, True]
    young = write(tmp_path, "sampler_weights/young.tar.gz", 10)
    assert delete_snapshots(tmp_path, kept=0, young_s=900) == 30
    assert young.exists()
    assert delete_snapshots(tmp_path, kept=0, young_s=0) == 10
    assert state.exists()
    assert delete_snapshots(tmp_path / "nothing") == 0


def test_snapshots_and_states_are_deleted_by_their_path(tmp_path: Path) -> None:
    snapshot = write(tmp_path, "sampler_weights/step-1.tar.gz", 0)
    part = write(tmp_path, "state-1.tar.gz/part", 0)  # a state is a folder
    other = write(tmp_path, "state-2.tar.gz/part", 0)
    assert delete_saved(tmp_path, "tinker://model_1/step-1")
    assert not snapshot.exists()
    assert delete_saved(tmp_path, "tinker://model_1/weights/state-1")
    assert not part.parent.exists()
    assert not delete_saved(tmp_path, "tinker://model_1/weights/state-1")
    for path in ("tinker://../state-2", "tinker://model_1/weights/../x", "/etc/passwd"):
        assert not delete_saved(tmp_path, path)
    assert other.exists()
