"""Power cuts without pulling a plug: what SQLite writes and syncs is recorded, and at any moment
the disk may hold all that was synced, and any torn part of what was not.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from engine.storage.run_db.writer import RunWriter

SECTOR = 512
BASE = apsw.vfs_names()[0]


@dataclass
class Disk:
    """One file: what is safe, and what was written since."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, data), or (size, None) for a cut to that size."""

    def after(self, chance: random.Random) -> bytes:
        """What a cut leaves: each pending write is there, or not, or only some of its sectors."""
        left = bytearray(self.safe)
        for place, data in self.pending:
            if chance.random() < 0.5:
                continue
            if data is None:
                del left[place:]
                continue
            whole = chance.random() < 0.7
            for start in range(0, len(data), SECTOR):
                if whole or chance.random() < 0.5:
                    _put(left, place + start, data[start : start + SECTOR])
        return bytes(left)

    def sync(self) -> None:
        for place, data in self.pending:
            if data is None:
                del self.safe[place:]
            else:
                _put(self.safe, place, data)
        self.pending.clear()


def _put(content: bytearray, place: int, data: bytes) -> None:
    content.extend(bytes(max(0, place - len(content))))
    content[place : place + len(data)] = data


class Recorder(apsw.VFS):
    """Everything that goes to the disk, and every word that was acknowledged, in order."""

    def __init__(self, name: str) -> None:
        self.log: list[tuple[str, str, int, bytes | None]] = []
        super().__init__(name, BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return Recorded(self.log, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.log.append(("delete", Path(filename).name, 0, None))

    def acknowledged(self, word: str) -> None:
        self.log.append(("told", word, 0, None))


class Recorded(apsw.VFSFile):
    def __init__(
        self,
        log: list[tuple[str, str, int, bytes | None]],
        name: str | apsw.URIFilename | None,
        flags: list[int],
    ) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._log, self._name = log, Path(path or "temporary").name
        super().__init__(BASE, name, flags)  # type: ignore[arg-type]

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._log.append(("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._log.append(("write", self._name, newsize, None))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._log.append(("sync", self._name, 0, None))


def record(
    folder: Path, work: Callable[[RunWriter, Callable[[str], None]], Awaitable[None]], *pragmas: str
) -> Recorder:
    """Do some work through a writer; `work` says which words were acknowledged."""
    recorder = Recorder(f"recorder-{folder.name}")

    async def session() -> None:
        writer = RunWriter(folder / "run.db", "run")
        for pragma in ("wal_autocheckpoint = 40", *pragmas):
            writer._db.execute(f"PRAGMA {pragma}")
        recorder.log.append(("begun", "", 0, None))
        await work(writer, recorder.acknowledged)
        writer.close()

    try:
        asyncio.run(session())
    finally:
        recorder.unregister()
    return recorder


@dataclass
class Losses:
    """Over all cuts."""

    unreadable: int = 0
    words: int = 0

    def __bool__(self) -> bool:
        return bool(self.unreadable or self.words)


def cut(recorder: Recorder, folder: Path, cuts: int, seed: int) -> Losses:
    """Cut the power that often after the tables are there; what was lost of the acknowledged."""
    chance, losses = random.Random(seed), Losses()
    first = next(n for n, entry in enumerate(recorder.log) if entry[0] == "begun")
    moments = sorted(chance.randrange(first, len(recorder.log)) for _ in range(cuts))
    disks: dict[str, Disk] = {}
    told: set[str] = set()
    at = 0
    for moment in moments:
        while at < moment:
            _happen(recorder.log[at], disks, told)
            at += 1
        for old in folder.iterdir():
            old.unlink()
        for name, disk in disks.items():
            (folder / name).write_bytes(disk.after(chance))
        found = _read(folder / "run.db")
        losses.unreadable += found is None
        losses.words += bool(found is not None and told - found)
    return losses


def _happen(
    entry: tuple[str, str, int, bytes | None], disks: dict[str, Disk], told: set[str]
) -> None:
    kind, name, place, data = entry
    match kind:
        case "told":
            told.add(name)
        case "write":
            disks.setdefault(name, Disk()).pending.append((place, data))
        case "sync":
            disks.setdefault(name, Disk()).sync()
        case "delete":
            disks.pop(name, None)


def _read(file: Path) -> set[str] | None:
    """The words that are there; None where the file cannot be read."""
    try:
        db = apsw.Connection(str(file))
        try:
            if db.execute("PRAGMA integrity_check").get != "ok":
                return None
            return {
                str(row[0]) for row in db.execute("SELECT json_extract(body, '$.text') FROM events")
            }
        finally:
            db.close()
    except apsw.Error:
        return None
