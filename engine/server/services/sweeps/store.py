"""Records of the sweeps that an engine knows: those it works on in memory and on disk, others read
from disk."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.sweeps import SweepRecord
from engine.runtime.closing import finished
from engine.server.event_stream import Broadcast
from engine.server.services.library import Library
from engine.training.sweep.record import (
    ACTIVE,
    RECORD,
    current_record,
    is_sweep_id,
    locked_sweep,
    read_record,
    sweep_folders,
    write_record,
)

Change = Callable[[SweepRecord], SweepRecord]


class SweepStore:
    """Reads and changes records. A sweep that this engine works on is locked against others."""

    def __init__(self, library: Library, broadcast: Broadcast) -> None:
        self._library, self._broadcast = library, broadcast
        self._folders: dict[str, Path] = {}
        self._loaded: dict[str, SweepRecord] = {}
        self._locks: dict[str, contextlib.ExitStack] = {}
        self._changing = asyncio.Lock()

    def folder(self, sweep_id: str) -> Path:
        """Folder of a sweep of the known projects. Raises Refused if there is none."""
        known = self._folders.get(sweep_id)
        if known and (known / RECORD).exists():
            return known
        for project in self._library.projects() if is_sweep_id(sweep_id) else []:
            folder = project / "sweeps" / sweep_id
            if (folder / RECORD).is_file():
                self._folders[sweep_id] = folder
                return folder
        raise Refused.of(
            "sweep.unknown", f"There is no sweep {sweep_id[:40]}.", "Open its project first."
        )

    def folders(self, project: Path | None) -> list[Path]:
        """Folders of the sweeps of one project, or of all known ones, newest first."""
        projects = [project] if project else self._library.projects()
        found = [folder for one in projects for folder in sweep_folders(one)]
        self._folders |= {folder.name: folder for folder in found}
        return sorted(found, key=lambda folder: folder.name, reverse=True)

    def current(self, folder: Path) -> SweepRecord:
        """Record of the sweep in `folder`: the one in memory if this engine works on it, else from
        disk. Raises StoreError if it is damaged."""
        return self._loaded.get(folder.name) or current_record(folder)

    def loaded(self, sweep_id: str) -> SweepRecord | None:
        """Record of a sweep that this engine has loaded: active, or just halted while its run ends;
        None for any other."""
        return self._loaded.get(sweep_id)

    def active(self, sweep_id: str) -> SweepRecord | None:
        """Record of a sweep that this engine works on, or will when the device is free; None for
        any other, such as a paused one."""
        record = self._loaded.get(sweep_id)
        return record if record and record.state in ACTIVE else None

    @property
    def oldest_active(self) -> str | None:
        """Id of the oldest active sweep, which runs next; None if none is active."""
        return min((one.id for one in self._loaded.values() if one.state in ACTIVE), default=None)

    async def add(self, folder: Path, record: SweepRecord) -> None:
        """Store a new sweep and begin to work on it."""
        async with self._changing:
            await finished(asyncio.to_thread(write_record, folder, record))
            self._folders[record.id] = folder
            self._take(folder, record)

    async def activate(self, folder: Path) -> SweepRecord:
        """Begin to work on a stored sweep. Raises Refused if another engine does, StoreError."""
        async with self._changing:
            if folder.name not in self._loaded:
                self._take(folder, await asyncio.to_thread(read_record, folder))
            return self._loaded[folder.name]

    async def change(self, sweep_id: str, change: Change, always: bool = False) -> SweepRecord:
        """Replace the record of a loaded sweep by `change(record)`, store it with the next revision
        and notify listeners; an equal record only with `always`. Raises Refused if the sweep is not
        loaded, OSError if it cannot be stored; nothing is changed then."""
        async with self._changing:
            record = self._loaded.get(sweep_id)
            if record is None:
                raise Refused.of("sweep.inactive", "This sweep is not active.", "Resume it.")
            changed = change(record)
            if changed == record and not always:
                return record
            changed = changed.model_copy(update={"revision": record.revision + 1})
            await finished(asyncio.to_thread(write_record, self._folders[sweep_id], changed))
            self._loaded[sweep_id] = changed
            self._broadcast.announce(sweep_id, None)
            return changed

    def release(self, sweep_id: str) -> None:
        """Unload and unlock a sweep; its stored state stays."""
        self._loaded.pop(sweep_id, None)
        if lock := self._locks.pop(sweep_id, None):
            lock.close()

    def release_inactive(self, keep: str = "") -> None:
        """Unload sweeps that are paused or over, except the sweep `keep`, whose run is still
        ending."""
        for record in list(self._loaded.values()):
            if record.state not in ACTIVE and record.id != keep:
                self.release(record.id)

    def close(self) -> None:
        for sweep_id in list(self._loaded):
            self.release(sweep_id)

    def interrupted(self) -> list[tuple[Path, SweepRecord]]:
        """Stored sweeps that an earlier engine worked on when it ended, oldest first."""
        found = []
        for folder in reversed(self.folders(None)):
            with contextlib.suppress(StoreError):  # a list of sweeps shows the damage
                record = read_record(folder)
                if record.state in ACTIVE:
                    found.append((folder, record))
        return found

    def _take(self, folder: Path, record: SweepRecord) -> None:
        lock = contextlib.ExitStack()
        lock.enter_context(locked_sweep(folder))
        self._locks[record.id] = lock
        self._loaded[record.id] = record
