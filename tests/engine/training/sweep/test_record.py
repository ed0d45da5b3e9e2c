"""Records of sweeps on disk: exact, damaged, of a newer version, interrupted, locked."""

import json
from pathlib import Path

import pytest

from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.sweeps import SweepRecord
from engine.training.sweep.record import (
    RECORD,
    current_record,
    locked_sweep,
    read_record,
    sweep_folders,
    write_record,
)
from tests.engine.training.sweep.test_results import record, run


def stored(project: Path) -> tuple[Path, SweepRecord]:
    made = record([run(0, "finished", 0.1 + 0.2, 1e-17)], [run(0, "running", None)])
    folder = project / "sweeps" / made.id
    write_record(folder, made)
    return folder, made


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder, made = stored(tmp_path)
    assert read_record(folder) == made
    assert sweep_folders(tmp_path) == [folder]


def test_other_folders_are_no_sweeps(tmp_path: Path) -> None:
    stored(tmp_path)
    other = tmp_path / "sweeps" / "notes"
    other.mkdir()
    (other / RECORD).write_text("{}")
    assert len(sweep_folders(tmp_path)) == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"id": 1e999}', "\0"])
def test_damaged_record_is_refused_with_a_reason(tmp_path: Path, text: str) -> None:
    folder, _ = stored(tmp_path)
    (folder / RECORD).write_text(text)
    with pytest.raises(StoreError, match=r"The sweep's sweep.json cannot be read: .+"):
        read_record(folder)


def test_record_of_another_sweep_or_version_is_refused(tmp_path: Path) -> None:
    folder, _ = stored(tmp_path)
    copy = folder.rename(folder.with_name("01BX5ZZKBKACTAV9WEVGEMMVRZ"))
    with pytest.raises(StoreError, match="another sweep"):
        read_record(copy)
    data = json.loads((copy / RECORD).read_text())
    (copy / RECORD).write_text(json.dumps(data | {"schema_version": 2}))
    with pytest.raises(StoreError, match="newer version"):
        read_record(copy)


def test_active_record_without_an_engine_is_shown_as_paused(tmp_path: Path) -> None:
    folder, made = stored(tmp_path)
    shown = current_record(folder)
    assert shown.state == "paused"
    assert shown.problem is not None
    assert shown.problem.code == "sweep.interrupted"
    with locked_sweep(folder):
        assert current_record(folder) == made
        with (
            pytest.raises(Refused, match="Another engine is running this sweep"),
            locked_sweep(folder),
        ):
            pass
