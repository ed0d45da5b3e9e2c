"""Folders that arrive: file by file, whole, never outside, whoever is cut off."""

import asyncio
import hashlib
import os
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
    """As far as they fit beside each other: a name cannot be a file and a folder."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    kept = {}
    for name, data in files.items():
        if any(other.startswith(f"{name}/") for other in files):
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        kept[name] = data
    return kept


def read(root: Path) -> dict[str, bytes]:
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and "runs" not in file.relative_to(root).parts
    }


def bring(incoming: Incoming, source: Path, asked: SyncFolder, cut: int = 0) -> None:
    """As a home machine does it; every content comes in two pieces, the first `cut` bytes long."""

    async def pieces(data: bytes) -> AsyncIterator[bytes]:
        yield data

    files = {file.sha256: file for file in asked.manifest.files}
    for sha256 in incoming.missing(asked).sha256:
        data = (source / files[sha256].path).read_bytes()
        for piece in (data[:cut], data[cut:]):
            asyncio.run(incoming.take(sha256, incoming.received_bytes(sha256), pieces(piece)))
        incoming.finish(sha256, len(data))
    incoming.commit(asked)


@given(before=FOLDERS, after=FOLDERS, cut=st.integers(0, 40))
def test_the_folder_is_as_it_is_at_home(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, bytes],
    after: dict[str, bytes],
    cut: int,
) -> None:
    """Files go, come, change, become folders and back; runs stay, and nothing else is left."""
    scratch = tmp_path_factory.mktemp("sync")
    home, workspace = scratch / "home", scratch / "workspace"
    incoming = Incoming(workspace, {"workspace": workspace})
    for files in (before, after):
        wanted = write(home, files)
        asked = SyncFolder(folder="project", manifest=manifest(home))
        bring(incoming, home, asked, cut)
        assert read(workspace / "project") == wanted
        (workspace / "project" / "runs" / "one").mkdir(parents=True, exist_ok=True)
        (workspace / "project" / "runs" / "one" / "run.json").touch()
    assert (workspace / "project" / "runs" / "one" / "run.json").exists()
    assert not list((workspace / ".atelier" / "incoming").glob("*.part"))


def test_what_is_missing_changes_nothing(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    incoming = Incoming(workspace, {"workspace": workspace})
    write(home, {"a": b"one"})
    bring(incoming, home, SyncFolder(folder="p", manifest=manifest(home)))
    write(home, {"a": b"two", "b": b"new"})
    asked = SyncFolder(folder="p", manifest=manifest(home))
    with pytest.raises(Refused, match="Not every file has arrived"):
        incoming.commit(asked)
    assert read(workspace / "p") == {"a": b"one"}


def test_a_damaged_content_is_not_taken(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path, {"workspace": tmp_path})
    digest = hashlib.sha256(b"right").hexdigest()

    async def wrong() -> AsyncIterator[bytes]:
        yield b"wrong"

    asyncio.run(incoming.take(digest, 0, wrong()))
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
def test_no_file_leaves_the_folder(tmp_path: Path, path: str) -> None:
    """Neither parsed, nor laid down where somebody has got past the parser."""
    workspace = tmp_path / "workspace"
    incoming = Incoming(workspace, {"workspace": workspace})
    digest = hashlib.sha256(b"x").hexdigest()

    async def data() -> AsyncIterator[bytes]:
        yield b"x"

    asyncio.run(incoming.take(digest, 0, data()))
    incoming.finish(digest, 1)
    entry = FileEntry.model_construct(path=path, bytes=1, sha256=digest)
    asked = SyncFolder.model_construct(
        folder="p", run="", place="workspace", manifest=Manifest.model_construct(files=[entry])
    )
    with pytest.raises(Refused, match="is outside its folder or not a safe name"):
        incoming.commit(asked)
    assert not (tmp_path / "out").exists()
    assert not (workspace / "p").exists()


def test_a_link_there_is_not_followed(tmp_path: Path) -> None:
    """A folder that was replaced by a link leads nowhere."""
    home, workspace, elsewhere = (tmp_path / name for name in ("home", "workspace", "elsewhere"))
    elsewhere.mkdir()
    (workspace / "p").mkdir(parents=True)
    (workspace / "p" / "folder").symlink_to(elsewhere)
    incoming = Incoming(workspace, {"workspace": workspace})
    write(home, {"folder/a": b"one"})
    bring(incoming, home, SyncFolder(folder="p", manifest=manifest(home)))
    assert not list(elsewhere.iterdir())
    assert (workspace / "p" / "folder" / "a").read_bytes() == b"one"


def test_secrets_runs_and_what_is_named_stay_at_home(tmp_path: Path) -> None:
    names = (".env", "runs/x/run.db", "__pycache__/a.pyc", ".git/HEAD", "data/big.bin", "agent.py")
    write(tmp_path, dict.fromkeys(names, b"x"))
    (tmp_path / ".atelierignore").write_text("data/\n!data/kept\n")
    os.chmod(tmp_path / "agent.py", 0o755)
    found = {file.path: file for file in project_manifest(tmp_path).files}
    assert set(found) == {"agent.py", ".atelierignore"}
    assert found["agent.py"].executable


def test_too_much_is_said_with_the_largest_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "MOST_BYTES", 10)
    write(tmp_path, {"a": b"x" * 8, "weights.bin": b"x" * 9})
    with pytest.raises(ConfigError, match=r"weights\.bin") as error:
        project_manifest(tmp_path)
    assert ".atelierignore" in error.value.problem.hint
