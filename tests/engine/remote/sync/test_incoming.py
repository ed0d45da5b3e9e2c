"""Incoming folder uploads: complete files only, never outside the folder, resumable."""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.problems import ConfigError, Refused
from engine.protocol.requests.sync import FileEntry, Manifest, SyncFolder
from engine.remote.sync import manifest as manifests
from engine.remote.sync.incoming import Incoming
from engine.remote.sync.manifest import manifest, project_manifest

NAMES = ("a", "b", "folder/a", "folder/deep/c", "folder", "x.py")
FOLDERS = st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=40), max_size=5)


def write(root: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """Write the files that fit together: a name cannot be both a file and a folder."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    written = {}
    for name, data in files.items():
        if any(other.startswith(f"{name}/") for other in files):
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        written[name] = data
    return written


def read(root: Path) -> dict[str, bytes]:
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and "runs" not in file.relative_to(root).parts
    }


def upload(incoming: Incoming, source: Path, request: SyncFolder, cut: int = 0) -> None:
    """Upload like a client; every content is sent in two pieces, the first `cut` bytes long."""

    async def pieces(data: bytes) -> AsyncIterator[bytes]:
        yield data

    files = {file.sha256: file for file in request.manifest.files}
    for sha256 in incoming.missing(request).sha256:
        data = (source / files[sha256].path).read_bytes()
        for piece in (data[:cut], data[cut:]):
            asyncio.run(incoming.take(sha256, incoming.received_bytes(sha256), pieces(piece)))
        incoming.finish(sha256, len(data))
    incoming.commit(request)


@given(before=FOLDERS, after=FOLDERS, cut=st.integers(0, 40))
def test_committed_folder_equals_its_source(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, bytes],
    after: dict[str, bytes],
    cut: int,
) -> None:
    """Files are removed, added, changed, replaced by folders; runs stay, no part is left."""
    scratch = tmp_path_factory.mktemp("sync")
    home, workspace = scratch / "home", scratch / "workspace"
    incoming = Incoming(workspace, {"workspace": workspace})
    for files in (before, after):
        expected = write(home, files)
        request = SyncFolder(folder="project", manifest=manifest(home))
        upload(incoming, home, request, cut)
        assert read(workspace / "project") == expected
        (workspace / "project" / "runs" / "one").mkdir(parents=True, exist_ok=True)
        (workspace / "project" / "runs" / "one" / "run.json").touch()
    assert (workspace / "project" / "runs" / "one" / "run.json").exists()
    assert not list((workspace / ".atelier" / "incoming").glob("*.part"))


def test_commit_with_missing_files_changes_nothing(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    incoming = Incoming(workspace, {"workspace": workspace})
    write(home, {"a": b"one"})
    upload(incoming, home, SyncFolder(folder="p", manifest=manifest(home)))
    write(home, {"a": b"two", "b": b"new"})
    request = SyncFolder(folder="p", manifest=manifest(home))
    with pytest.raises(Refused, match="Some files are not uploaded yet"):
        incoming.commit(request)
    assert read(workspace / "p") == {"a": b"one"}


def test_damaged_content_is_rejected(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, {"workspace": tmp_path})
    digest = hashlib.sha256(b"right").hexdigest()

    async def wrong_content() -> AsyncIterator[bytes]:
        yield b"wrong"

    asyncio.run(incoming.take(digest, 0, wrong_content()))
    with pytest.raises(Refused, match="damaged"):
        incoming.finish(digest, 5)
    assert incoming.received_bytes(digest) == 0


@pytest.mark.parametrize(
    "path",
    [
        "../out",
        "/etc/passwd",
        "a/../../b",
        "a\\..\\b",
        "",
        "runs/x/run.json",
        ".atelier/lock",
        ".git/x",
    ],
)
def test_path_outside_the_folder_is_rejected(tmp_path: Path, path: str) -> None:
    """Rejected even if the path check of the parser is bypassed."""
    workspace = tmp_path / "workspace"
    incoming = Incoming(workspace, {"workspace": workspace})
    digest = hashlib.sha256(b"x").hexdigest()

    async def data() -> AsyncIterator[bytes]:
        yield b"x"

    asyncio.run(incoming.take(digest, 0, data()))
    incoming.finish(digest, 1)
    entry = FileEntry.model_construct(path=path, bytes=1, sha256=digest)
    request = SyncFolder.model_construct(
        folder="p", run="", place="workspace", manifest=Manifest.model_construct(files=[entry])
    )
    with pytest.raises(Refused, match=re.escape(f"The path {path!a} is not allowed: ")):
        incoming.commit(request)
    assert not (tmp_path / "out").exists()
    assert not (workspace / "p").exists()


def test_existing_link_is_not_followed(tmp_path: Path) -> None:
    """A folder that was replaced by a link is restored without following it."""
    home, workspace, outside = (tmp_path / name for name in ("home", "workspace", "elsewhere"))
    outside.mkdir()
    (workspace / "p").mkdir(parents=True)
    (workspace / "p" / "folder").symlink_to(outside)
    incoming = Incoming(workspace, {"workspace": workspace})
    write(home, {"folder/a": b"one"})
    upload(incoming, home, SyncFolder(folder="p", manifest=manifest(home)))
    assert not list(outside.iterdir())
    assert (workspace / "p" / "folder" / "a").read_bytes() == b"one"


def test_secrets_runs_and_ignored_files_are_not_uploaded(tmp_path: Path) -> None:
    names = (".env", "runs/x/run.db", "__pycache__/a.pyc", ".git/HEAD", "data/big.bin", "agent.py")
    write(tmp_path, dict.fromkeys(names, b"x"))
    (tmp_path / ".atelierignore").write_text("data/\n!data/kept\n")
    os.chmod(tmp_path / "agent.py", 0o755)
    files_ = {file.path: file for file in project_manifest(tmp_path).files}
    assert set(files_) == {"agent.py", ".atelierignore"}
    assert files_["agent.py"].executable


def test_too_large_project_names_the_largest_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "MOST_BYTES", 10)
    write(tmp_path, {"a": b"x" * 8, "weights.bin": b"x" * 9})
    with pytest.raises(ConfigError, match=r"weights\.bin") as error:
        project_manifest(tmp_path)
    assert ".atelierignore" in error.value.problem.hint
