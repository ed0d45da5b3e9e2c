"""Repair and removal of a run folder that is not in use."""

import shutil
from pathlib import Path

from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.runs import RunSpec
from engine.remote.mirror.record import read_record
from engine.runtime.files import replace_file
from engine.storage.run_db.repair import Repaired, repair_database
from engine.storage.run_folder.files import check_run_folder, is_of_another_project
from engine.storage.run_folder.run import DATABASE, SPEC, read_spec


def repair(folder: Path) -> Repaired:
    """Recover the database of a run and, if unreadable, its run.json. The caller holds the lock of
    the folder. Raises Refused if nothing is damaged or the run is a mirror of a remote run,
    StoreError if nothing can be recovered."""
    check_run_folder(folder)
    if elsewhere := read_record(folder):
        raise Refused.of(
            "repair.elsewhere",
            f"This is the local copy of a run on {elsewhere.host}.",
            "Remove this copy: it is then fetched again from the server.",
        )
    known = _readable_spec(folder)
    repaired = repair_database(folder, DATABASE, known)
    if known is None:
        text = repaired.spec.model_dump_json(indent=1)
        replace_file(folder / SPEC, text)  # not write_spec, which would trust the database
    elif not repaired.events:
        raise Refused.of("repair.whole", "This run is not damaged.", where=str(folder))
    return repaired


def _readable_spec(folder: Path) -> RunSpec | None:
    try:
        spec = read_spec(folder)
    except StoreError as error:
        if error.problem.code == "store.newer":
            raise
        return None
    return spec if spec.id == folder.name else None


def remove(folder: Path) -> None:
    """Delete a run with its checkpoints, but not its exports. The caller holds the lock. Raises
    Refused if the folder is not one of a run, StoreError if it cannot be deleted."""
    if folder.is_symlink() or is_of_another_project(folder) or folder.parent.name != "runs":
        raise Refused.of("run.no_folder", "This is not the folder of a run.", where=str(folder))
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StoreError.of(
            "run.not_removed",
            f"The run could not be removed: {error.strerror}.",
            "Check the permissions of its folder, and delete the folder by hand.",
            where=str(folder),
        ) from error
