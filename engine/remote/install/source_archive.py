"""Our own source as one file that a server is given, named by what is in it."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.launcher.source_files import build, source_files
from engine.runtime.files import replace_file


@dataclass(frozen=True)
class SourceArchive:
    file: Path
    build: str
    sha256: str

    @property
    def bytes(self) -> int:
        return self.file.stat().st_size


def source_archive() -> SourceArchive:
    """Packed once into the user's cache; the same source gives the same bytes."""
    folder = Path(platformdirs.user_cache_dir("atelier")) / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"source-{build()}.tar.gz"
    if not file.exists():
        replace_file(file, _packed())
    return SourceArchive(file, build(), hashlib.sha256(file.read_bytes()).hexdigest())


def _packed() -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as tar,
    ):
        for name, file in source_files():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = file.stat().st_size, 0o644
            with file.open("rb") as source:
                tar.addfile(entry, source)
    return packed.getvalue()
