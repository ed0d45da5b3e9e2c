"""Sampler snapshots and saved states of SkyRL's server, which never deletes one: each update of a
run adds a snapshot, each checkpoint a state."""

import re
import shutil
import time
from pathlib import Path

FOLDER = "sampler_weights"
SAVED = re.compile(r"tinker://(\w+)/(?:(weights|sampler_weights)/)?(\w[\w.-]*)")
"""Path of a snapshot (with `sampler_weights` or nothing) or state (`weights`) at the server."""
KEPT = 3
YOUNG_S = 900.0
"""Age in seconds up to which a snapshot is never deleted."""


def delete_snapshots(state: Path, kept: int = KEPT, young_s: float = YOUNG_S) -> int:
    """Delete the snapshots of every model but its `kept` newest ones and those younger than
    `young_s`, in the `state` folder of a server; returns the number of bytes. Saved states, from
    which runs resume, stay."""
    freed, now = 0, time.time()
    for folder in state.glob(f"checkpoints/*/{FOLDER}"):
        found = [(file.stat().st_mtime, file) for file in folder.glob("*.tar.gz")]
        found.sort(key=lambda one: one[0], reverse=True)
        for modified, file in found[kept:]:
            if now - modified > young_s:
                freed += file.stat().st_size
                file.unlink()
    return freed


def delete_saved(state: Path, path: str) -> bool:
    """Delete a snapshot or saved state by its path at the server, in the `state` folder of that
    server; returns whether it was there."""
    if (found := SAVED.fullmatch(path)) is None:
        return False
    model, kind, name = found.groups()
    folder = state / "checkpoints" / model
    file = (folder if kind == "weights" else folder / FOLDER) / f"{name}.tar.gz"
    if file.is_dir():
        shutil.rmtree(file)
    elif file.is_file():
        file.unlink()
    else:
        return False
    return True
