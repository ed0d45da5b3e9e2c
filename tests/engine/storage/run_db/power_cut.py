"""Simulated power cuts: the writes and syncs of SQLite are recorded; at any moment
the disk holds everything synced and any torn part of the rest.
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
    """Content of one file: synced bytes, and writes since."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, data), or (size, None) for a cut to that size."""

    def after(self, rng: random.Random) -> bytes:
        """Content after a cut: each pending write is applied, dropped, or torn at sectors."""
        content_ = bytearray(self.safe)
        for offset, data in self.pending:
            if rng.random() < 0.5:
                continue
            if data is None:
                del content_[offset:]
                continue
            is_complete = rng.random() < 0.7
            for start in range(0, len(data), SECTOR):
                if is_complete or rng.random() < 0.5:
                    _put(content_, offset + start, data[start : start + SECTOR])
        return bytes(content_)

    def sync(self) -> None:
        for offset, data in self.pending:
            if data is None:
                del self.safe[offset:]
            else:
                _put(self.safe, offset, data)
        self.pending.clear()


def _put(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class Recorder(apsw.VFS):
    """VFS that logs every disk operation and every acknowledged text, in order."""

    def __init__(self, name: str) -> None:
        self.log: list[tuple[str, str, int, bytes | None]] = []
        super().__init__(name, BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return RecordedFile(self.log, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.log.append(("delete", Path(filename).name, 0, None))

    def acknowledge(self, text: str) -> None:
        self.log.append(("acknowledge", text, 0, None))


class RecordedFile(apsw.VFSFile):
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
    """Run `work` through a writer; `work` reports the acknowledged texts."""
    recorder = Recorder(f"recorder-{folder.name}")

    async def session() -> None:
        writer = RunWriter(folder / "run.db", "run")
        for pragma in ("wal_autocheckpoint = 40", *pragmas):
            writer._db.execute(f"PRAGMA {pragma}")
        recorder.log.append(("start", "", 0, None))
        await work(writer, recorder.acknowledge)
        writer.close()

    try:
        asyncio.run(session())
    finally:
        recorder.unregister()
    return recorder


@dataclass
class Losses:
    """Losses over all cuts."""

    unreadable: int = 0
    texts: int = 0

    def __bool__(self) -> bool:
        return bool(self.unreadable or self.texts)


def cut(recorder: Recorder, folder: Path, cuts: int, seed: int) -> Losses:
    """Cut the power `cuts` times once the tables exist; returns the acknowledged texts lost."""
    rng, losses = random.Random(seed), Losses()
    first = next(n for n, entry in enumerate(recorder.log) if entry[0] == "start")
    moments = sorted(rng.randrange(first, len(recorder.log)) for _ in range(cuts))
    disks: dict[str, Disk] = {}
    acknowledged: set[str] = set()
    at = 0
    for moment in moments:
        while at < moment:
            _apply(recorder.log[at], disks, acknowledged)
            at += 1
        for old in folder.iterdir():
            old.unlink()
        for name, disk in disks.items():
            (folder / name).write_bytes(disk.after(rng))
        readable = _read(folder / "run.db")
        losses.unreadable += readable is None
        losses.texts += bool(readable is not None and acknowledged - readable)
    return losses


def _apply(
    entry: tuple[str, str, int, bytes | None], disks: dict[str, Disk], acknowledged: set[str]
) -> None:
    kind, name, offset, data = entry
    match kind:
        case "acknowledge":
            acknowledged.add(name)
        case "write":
            disks.setdefault(name, Disk()).pending.append((offset, data))
        case "sync":
            disks.setdefault(name, Disk()).sync()
        case "delete":
            disks.pop(name, None)


def _read(file: Path) -> set[str] | None:
    """Texts that can be read back; None if the file cannot be read."""
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
