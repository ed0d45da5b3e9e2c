"""Sampler snapshots of SkyRL's server, which never deletes one: each update of a run adds one."""

import time
from pathlib import Path

FOLDER = "sampler_weights"
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
