"""A checkpoint is whole or absent."""

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
    """Writes two files, as a real one would."""

    async def save(self, folder: Path) -> None:
        for name in ("adapter/adapter_model.safetensors", "trainer/optimizer.safetensors"):
            (folder / name).parent.mkdir()
            (folder / name).write_bytes(name.encode() * 100)


def saved(run: Path, step: int) -> Checkpoint:
    return asyncio.run(save(run, step, Policy(), {}, {}))  # type: ignore[arg-type]


def test_a_saved_checkpoint_verifies(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, 3)
    folder = tmp_path / checkpoint.path
    assert verify(folder)
    names = json.loads((folder / "MANIFEST.json").read_text())["files"]
    assert set(names) == {
        "adapter/adapter_model.safetensors",
        "trainer/optimizer.safetensors",
        "trainer/state.json",
    }


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "no manifest"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, harm: str) -> None:
    good, bad = saved(tmp_path, 1), saved(tmp_path, 2)
    file = tmp_path / bad.path / "adapter" / "adapter_model.safetensors"
    data = file.read_bytes()
    if harm == "truncate":
        file.write_bytes(data[:-1])
    elif harm == "flip":
        file.write_bytes(b"X" + data[1:])
    elif harm == "remove":
        file.unlink()
    else:
        (tmp_path / bad.path / "MANIFEST.json").unlink()
    assert newest(tmp_path, [good, bad]) == good


def test_what_an_interrupted_save_left_is_swept(tmp_path: Path) -> None:
    half = tmp_path / "checkpoints" / ".writing-000007"
    half.mkdir(parents=True)
    (half / "x").write_text("half")
    (half.parent / "step-000003").mkdir()
    kept = saved(tmp_path, 5)
    sweep(tmp_path, [kept])
    assert [path.name for path in half.parent.iterdir()] == ["step-000005"]


def test_its_record_names_the_weights(tmp_path: Path) -> None:
    file = tmp_path / saved(tmp_path, 3).path / "adapter" / "adapter_model.safetensors"
    assert saved(tmp_path, 3).adapter == sha256_of(file)
    file.write_bytes(b"short")
    assert not is_complete(file.parents[1])


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    class Full(Policy):
        async def save(self, folder: Path) -> None:
            await super().save(folder)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    good = saved(tmp_path, 1)
    with pytest.raises(StoreError) as raised:
        asyncio.run(save(tmp_path, 2, Full(), {}, {}))  # type: ignore[arg-type]
    assert raised.value.problem.code == "store.disk_full"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    assert newest(tmp_path, [good]) == good
