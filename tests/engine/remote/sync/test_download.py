"""Downloads from a hostile server: only inside the run, no local files replaced, bounded size."""

import asyncio
import hashlib
import json
import os
import resource
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from engine.protocol.problems import AtelierError, LaunchError, Refused, StoreError
from engine.remote.sync.download import MOST_RUN_BYTES, fetch
from tests.support.lying_engine import Asked, Said, lying

RUN = "01JD5MAMBERKESTRE000000000"
CONTENT = b"print('mine now')\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
OUTSIDE = (
    "../../../agent.py",
    "../../agent.py",
    "checkpoints/../../../agent.py",
    "/tmp/escaped",
    "checkpoints/\\..\\x",
    "checkpoints/a\0b",
    "checkpoints/.git/hooks/x",
    "checkpoints/nul",
)
OURS = ("run.db", "run.db-wal", "RUN.DB", "run.json", "lock", "replica.json", ".arriving/x")


def entry(path: str, **more: object) -> dict[str, object]:
    return {"path": path, "bytes": len(CONTENT), "sha256": DIGEST, "executable": True, **more}


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file.relative_to(folder)): (file.lstat().st_mode, file.read_bytes())
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Run folder of a replica within a project within a home folder."""
    folder = tmp_path / "home" / "project" / "runs" / RUN
    folder.mkdir(parents=True)
    (folder.parents[1] / "agent.py").write_text("print('theirs')\n")
    (folder / "run.json").write_text("{}")
    (folder / "run.db").write_bytes(b"database")
    (folder / "replica.json").write_text("{}")
    return folder


def download(
    run: Path, files: list[dict[str, object]] | bytes, below: str = "", content: bytes = CONTENT
) -> list[Path]:
    def reply(asked: Asked) -> Said:
        if asked.path.endswith("/files"):
            file_list = files if isinstance(files, bytes) else json.dumps({"files": files}).encode()
            return Said(file_list)
        return Said(content[int(asked.params["offset"]) :])

    async def work() -> list[Path]:
        async with engine.client() as client:
            return await fetch(client, RUN, run, below, lambda done, total: None)

    with lying(reply) as engine:
        return asyncio.run(work())


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("below", ["", "checkpoints"])
def test_path_outside_writes_nothing(run: Path, path: str, below: str) -> None:
    home = run.parents[2]
    before = snapshot(home)
    with pytest.raises(AtelierError):
        download(run, [entry("checkpoints/good"), entry(path)], below)
    assert snapshot(home) == before


@pytest.mark.parametrize("path", OURS)
def test_files_that_identify_a_run_are_never_downloaded(run: Path, path: str) -> None:
    """`run.json` is skipped, since honest servers list it too; the others are rejected."""
    home = run.parents[2]
    before = snapshot(home)
    if path == "run.json":
        download(run, [entry(path)])
    else:
        with pytest.raises(Refused, match="only this machine may write"):
            download(run, [entry(path)])
    assert snapshot(home) == before


def test_files_outside_the_request_are_rejected(run: Path) -> None:
    with pytest.raises(Refused, match=r"only logs/run\.log was requested"):
        download(run, [entry("logs/run.log"), entry("logs/other.log")], "logs/run.log")
    with pytest.raises(Refused, match="only checkpoints was requested"):
        download(run, [entry("checkpoints-more/x")], "checkpoints")
    with pytest.raises(Refused, match="listed twice"):
        download(run, [entry("logs/run.log"), entry("logs/RUN.log")])
    assert not (run / "logs").exists()


def test_file_modes_are_set_locally(run: Path) -> None:
    (file,) = download(run, [entry("checkpoints/good")])
    assert file.read_bytes() == CONTENT
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["parent", "file", "part"])
def test_links_are_not_followed(run: Path, place: str) -> None:
    outside = run.parents[3] / "elsewhere"
    outside.mkdir()
    (outside / "file").write_text("theirs")
    if place == "parent":
        (run / "checkpoints").symlink_to(outside)
    elif place == "file":
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "file").symlink_to(outside / "file")
    else:
        (run / ".arriving").symlink_to(outside)
    with pytest.raises(Refused, match="link"):
        download(run, [entry("checkpoints/file")])
    assert snapshot(outside)["file"][1] == b"theirs"
    assert len(list(outside.iterdir())) == 1


@pytest.mark.parametrize(
    "bad_field",
    [
        {"sha256": "../" + "0" * 61},
        {"sha256": DIGEST.upper()},
        {"sha256": None},
        {"bytes": -1},
        {"bytes": 2**70},
        {"bytes": "many"},
        {"path": 5},
        {"path": None},
    ],
)
def test_bad_field_is_rejected_on_parsing(run: Path, bad_field: dict[str, object]) -> None:
    before = snapshot(run)
    with pytest.raises(LaunchError, match="invalid response"):
        download(run, [entry("checkpoints/good") | bad_field])
    assert snapshot(run) == before


@pytest.mark.parametrize(
    "file_list",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"[" * 100_000,
        b'{"files":' * 50_000,
        b"\xff\xfe",
        b'{"files": 3}',
    ],
    ids=lambda file_list: repr(file_list[:12]),
)
def test_malformed_file_list_is_rejected(run: Path, file_list: bytes) -> None:
    with pytest.raises(LaunchError, match="invalid response"):
        download(run, file_list)


def test_download_larger_than_the_limits_is_rejected(run: Path) -> None:
    with pytest.raises(StoreError, match="this disk has"):
        download(run, [entry("checkpoints/a", bytes=MOST_RUN_BYTES // 2)])
    with pytest.raises(Refused, match="are expected"):
        download(run, [entry(f"checkpoints/{n}", bytes=2**40) for n in range(4)])


def test_damaged_content_is_not_stored(run: Path) -> None:
    with pytest.raises(StoreError, match="was damaged in every download"):
        download(run, [entry("checkpoints/good")], content=CONTENT[::-1])
    assert not (run / "checkpoints" / "good").exists()


def test_endless_responses_are_cut_off(run: Path) -> None:
    """An endless file, file list and stream line: memory and disk stay bounded."""

    def endless(out: BinaryIO) -> None:
        while True:
            out.write(b"0" * 2**16)

    def reply(asked: Asked) -> Said:
        if asked.params.get("below") == "logs":
            return Said(json.dumps({"files": [entry("logs/endless")]}).encode())
        return Said(stream=endless)

    async def work(below: str) -> None:
        async with engine.client() as client:
            await fetch(client, RUN, run, below, lambda done, total: None)

    async def ticks() -> None:
        async with engine.client() as client:
            async for _ in client.ticks(RUN):
                pass

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    with lying(reply) as engine:
        with pytest.raises(LaunchError, match="it is longer than the announced"):
            asyncio.run(work("logs"))
        with pytest.raises(LaunchError, match="larger than 128 MiB"):
            asyncio.run(work(""))
        with pytest.raises(LaunchError, match="a line is longer than 1 MiB"):
            asyncio.run(ticks())
    memory_growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"endless answers: {time.monotonic() - start:.1f} s, {memory_growth:.0f} MiB more memory")
    assert memory_growth < 400
    stored_bytes = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    assert stored_bytes < 10_000


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_compressed_responses_are_rejected(run: Path, coding: str) -> None:
    def reply(asked: Asked) -> Said:
        return Said(b"\x1f\x8b", headers={"content-encoding": coding})

    async def work() -> None:
        async with engine.client() as client:
            await client.run_files(RUN, "")

    with lying(reply) as engine:
        with pytest.raises(LaunchError, match="compressed"):
            asyncio.run(work())


def test_unicode_line_separators_do_not_split_a_line() -> None:
    """JSON strings may contain U+2028 and U+0085."""
    words = "a\u2028b\x85c"
    tick = (
        f'"kind":"progress.ticked","step":1,"phase":"training","done":1,"total":2,"words":"{words}"'
    )

    async def work() -> list[str]:
        async with engine.client() as client:
            return [one.words async for one in client.ticks(RUN)]

    with lying(lambda asked: Said(f": beat\n\ndata: {{{tick}}}\r\n\n".encode())) as engine:
        assert asyncio.run(work()) == [words]


def test_fifo_in_the_download_folder_does_not_block(run: Path) -> None:
    (run / ".arriving").mkdir()
    os.mkfifo(run / ".arriving" / DIGEST)
    with pytest.raises(StoreError, match="could not be written here"):
        download(run, [entry("checkpoints/good")])


def test_downloads_of_one_file_into_one_run_take_turns(run: Path) -> None:
    """A mirror and a move to this machine fetch the same file at once: both find it whole."""
    asked: list[str] = []

    def reply(request: Asked) -> Said:
        asked.append(request.path)
        if request.path.endswith("/files"):
            return Said(json.dumps({"files": [entry("images/one")]}).encode())
        time.sleep(0.2)
        return Said(CONTENT[int(request.params["offset"]) :])

    async def work() -> list[list[Path]]:
        async with engine.client() as client:
            return await asyncio.gather(
                *(fetch(client, RUN, run, "", lambda done, total: None) for _ in range(3))
            )

    with lying(reply) as engine:
        found = asyncio.run(work())
    assert found == [[run / "images/one"]] * 3
    assert (run / "images/one").read_bytes() == CONTENT
    assert sum(not path.endswith("/files") for path in asked) == 1
