"""Checkpoints are complete or absent."""

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest

from engine.protocol.problems import StoreError
from engine.protocol.records.runs import Checkpoint
from engine.runtime.files import sha256_of
from engine.storage.checkpoints.checkpoint import is_complete, newest, save, sweep, verify


class Policy:
    """Policy stub that writes two files, like a real one."""

    async def save(self, folder: Path) -> None:
        for name in ("adapter/adapter_model.safetensors", "trainer/optimizer.safetensors"):
            (folder / name).parent.mkdir()
            (folder / name).write_bytes(name.encode() * 100)


def save_step(run: Path, step: int) -> Checkpoint:
    return asyncio.run(save(run, step, Policy(), {}, {}))  # type: ignore[arg-type]


def test_saved_checkpoint_passes_verification(tmp_path: Path) -> None:
    checkpoint = save_step(tmp_path, 3)
    folder = tmp_path / checkpoint.path
    assert verify(folder)
    names = json.loads((folder / "MANIFEST.json").read_text())["files"]
    assert set(names) == {
        "adapter/adapter_model.safetensors",
        "trainer/optimizer.safetensors",
        "trainer/state.json",
    }


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "no manifest"])
def test_damaged_checkpoint_is_skipped(tmp_path: Path, damage: str) -> None:
    intact, damaged = save_step(tmp_path, 1), save_step(tmp_path, 2)
    file = tmp_path / damaged.path / "adapter" / "adapter_model.safetensors"
    data = file.read_bytes()
    if damage == "truncate":
        file.write_bytes(data[:-1])
    elif damage == "flip":
        file.write_bytes(b"X" + data[1:])
    elif damage == "remove":
        file.unlink()
    else:
        (tmp_path / damaged.path / "MANIFEST.json").unlink()
    assert newest(tmp_path, [intact, damaged]) == intact


def test_sweep_removes_interrupted_and_unrecorded_checkpoints(tmp_path: Path) -> None:
    partial = tmp_path / "checkpoints" / ".writing-000007"
    partial.mkdir(parents=True)
    (partial / "x").write_text("half")
    (partial.parent / "step-000003").mkdir()
    recorded = save_step(tmp_path, 5)
    sweep(tmp_path, [recorded])
    assert [path.name for path in partial.parent.iterdir()] == ["step-000005"]


def test_checkpoint_record_has_adapter_hash_and_detects_truncation(tmp_path: Path) -> None:
    file = tmp_path / save_step(tmp_path, 3).path / "adapter" / "adapter_model.safetensors"
    assert save_step(tmp_path, 3).adapter == sha256_of(file)
    file.write_bytes(b"short")
    assert not is_complete(file.parents[1])


def test_full_disk_error_leaves_no_partial_checkpoint(tmp_path: Path) -> None:
    class FullDiskPolicy(Policy):
        async def save(self, folder: Path) -> None:
            await super().save(folder)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    intact = save_step(tmp_path, 1)
    with pytest.raises(StoreError) as raised:
        asyncio.run(save(tmp_path, 2, FullDiskPolicy(), {}, {}))  # type: ignore[arg-type]
    assert raised.value.problem.code == "store.disk_full"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    assert newest(tmp_path, [intact]) == intact
