"""Contents uploaded to this engine by another machine, and folders built from them.

A complete content is stored under its hash. A folder is changed file by file, each by rename, after
all contents have arrived. An interrupted upload sends only the missing contents.
"""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pathspec

from engine.protocol.identifiers import SHA256, check_path
from engine.protocol.problems import Refused, StoreError
from engine.protocol.requests.sync import Missing, Synced, SyncFolder
from engine.remote.sync.manifest import ALWAYS, Digest, digest_of, listed
from engine.runtime.files import move_into_place, sync, sync_open
from engine.runtime.safe_paths import open_to_write, outside
from engine.trust.projects import trust_new_project, trust_run

KEPT = (*ALWAYS, "/.atelier/")


LAST = ("config.json", "READY")
"""Files whose presence marks a complete model; they are placed last."""


class Incoming:
    """Uploaded contents of one workspace; folders are built below `places`."""

    def __init__(self, workspace: Path, places: dict[str, Path]) -> None:
        self._workspace, self._places = workspace, places
        self._contents = workspace / ".atelier" / "incoming"

    def missing(self, request: SyncFolder) -> Missing:
        """Hashes of the manifest's file contents that are neither in the folder nor uploaded
        yet."""
        root, wanted = self._root(request), request.manifest
        here = {file.sha256 for file in _present(root).values()} if root.is_dir() else set()
        lacking = {
            file.sha256: file.bytes
            for file in wanted.files
            if file.sha256 not in here and not self._content(file.sha256).exists()
        }
        return Missing(sha256=list(lacking), bytes=sum(lacking.values()))

    def received_bytes(self, sha256: str) -> int:
        """Number of bytes uploaded so far of the file content with this hash; 0 if none."""
        for file in (self._content(sha256), self._part(sha256)):
            if file.exists():
                return file.stat().st_size
        return 0

    async def take(self, sha256: str, offset: int, blocks: AsyncIterator[bytes]) -> int:
        """Append blocks to the partial upload of the content with this hash; returns its new size
        in bytes. Raises Refused if `offset` is not the current size, StoreError if the disk is
        full."""
        self._contents.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._part(sha256)
        size = self.received_bytes(sha256)
        if size != offset:
            raise Refused.of(
                "sync.other_place",
                f"The upload continues at byte {offset}, but the server has {size} bytes.",
            )
        try:
            with os.fdopen(open_to_write(part, append=True), "ab") as target:
                async for block in blocks:
                    await asyncio.to_thread(target.write, block)
        except OSError as error:
            raise _not_written(error) from error
        return part.stat().st_size

    def finish(self, sha256: str, size: int) -> None:
        """Accept the completed upload of a content. Raises Refused and deletes the upload if its
        hash or its size in bytes differs from the arguments."""
        part = self._part(sha256)
        if self._content(sha256).exists():
            return
        with part.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
            whole = digest == sha256 and part.stat().st_size == size
            if whole:
                sync_open(source)
        if not whole:
            part.unlink()
            raise Refused.of(
                "sync.damaged", "A file was damaged during the upload.", "It will be sent again."
            )
        move_into_place(part, self._content(sha256))

    def commit(self, request: SyncFolder) -> Synced:
        """Change the folder that `request` names to exactly the files of its manifest, with the
        uploaded contents; excluded files are kept. Raises Refused if contents are missing, before
        anything is changed."""
        root, wanted = self._root(request), request.manifest
        _refuse_bad_names(request)
        root.mkdir(parents=True, exist_ok=True)
        before = _present(root)
        by_hash = {file.sha256: root / name for name, file in before.items()}
        changed = [
            file
            for file in wanted.files
            if before.get(file.path) != (file.bytes, file.sha256, file.executable)
        ]
        changed.sort(key=lambda file: file.path in LAST)
        scratch = self._workspace / ".atelier" / f"laying-{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            for number, file in enumerate(changed):
                self._lay(scratch / str(number), file.sha256, by_hash, file.executable)
            for number, file in enumerate(changed):
                target = root / file.path
                if target.is_dir() and not target.is_symlink():
                    shutil.rmtree(target)
                _make_way(root, target)
                (scratch / str(number)).replace(target)
        except OSError as error:
            raise _not_written(error) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        gone = set(before) - {file.path for file in wanted.files}
        for path in gone:
            if (root / path).is_file():  # else a folder has taken its place, or a file its folder's
                (root / path).unlink()
        for file in wanted.files:
            self._content(file.sha256).unlink(missing_ok=True)
        if request.place == "workspace":  # the paired home machine sent it: the person's own
            trust_new_project(self._places[request.place] / request.folder)
        if request.run:
            trust_run(root)
        return Synced(path=str(root), changed=len(changed), removed=len(gone))

    def _root(self, request: SyncFolder) -> Path:
        root = self._places[request.place] / request.folder
        return root / "runs" / request.run if request.run else root

    def _lay(self, target: Path, sha256: str, by_hash: dict[str, Path], executable: bool) -> None:
        content = self._content(sha256)
        source = content if content.exists() else by_hash.get(sha256)
        if source is None:
            raise Refused.of(
                "sync.incomplete", "Some files are not uploaded yet.", "Upload the missing files."
            )
        shutil.copyfile(source, target)
        target.chmod(0o755 if executable else 0o644)
        sync(target)

    def _content(self, sha256: str) -> Path:
        if not re.fullmatch(SHA256[1:-1], sha256):
            raise Refused.of("sync.bad_hash", "This is not a SHA-256 hash.")
        return self._contents / sha256

    def _part(self, sha256: str) -> Path:
        return self._content(sha256).with_suffix(".part")


def _present(root: Path) -> dict[str, Digest]:
    """Digests of the files in a folder by relative path; names are not checked."""
    return {name: digest_of(file) for name, file in listed(root, KEPT)}


def _refuse_bad_names(request: SyncFolder) -> None:
    """Raises Refused for a path that leaves the folder, is listed twice, or is reserved."""
    reserved = pathspec.GitIgnoreSpec.from_lines([] if request.run else KEPT)
    seen: set[str] = set()
    for file in request.manifest.files:
        try:
            check_path(file.path)
        except ValueError as error:
            raise outside(file.path, str(error)) from None
        if reserved.match_file(file.path):
            raise outside(file.path, "this name is reserved for the server")
        if file.path in seen:
            raise outside(file.path, "it is listed twice")
        seen.add(file.path)


def _make_way(root: Path, target: Path) -> None:
    """Create the parent folders of `target`, replacing links and files in their place."""
    for parent in reversed(target.relative_to(root).parents):
        place = root / parent
        if place.is_symlink() or place.is_file():
            place.unlink()
        place.mkdir(exist_ok=True)


def _not_written(error: OSError) -> StoreError:
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return StoreError.of(
            "sync.disk_full",
            "The server's disk is full.",
            "Free some space there; received data is kept.",
        )
    return StoreError.of("sync.not_written", f"The server cannot store a file: {error.strerror}.")
