"""Download of a model from the Hugging Face hub into its cache, continued where it stopped.

huggingface_hub keeps no partial file of an interrupted process. Here each blob arrives in a file of
its own beside its final place, which a later process continues by a range request; links of the
snapshot are made last, so that an incomplete model is never listed.
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.models.hub import hub_problems, wanted_files
from engine.models.partial import PART, blob_bytes, check_room, repo_folder
from engine.models.registry import hub_cache
from engine.protocol.problems import ModelError
from engine.runtime.files import move_into_place, replace_file, sha256_of, sync

TICK_S = 0.25
"""Seconds between two reports of progress."""
AT_ONCE = 4
"""Files that are downloaded at the same time."""
MOST_FAILURES = 5
"""Connections in a row that deliver nothing, after which the download is interrupted."""
RETRY_S = 1.0
"""Seconds before a connection that was cut is made again."""
PARTIAL_CONTENT = 206
PASSING = (408, 429, 500, 502, 503, 504)
"""Statuses of refusals that are likely to pass."""
SHA256_DIGITS = 64
"""Length of the name of a large file's blob, which is its SHA-256."""

WEIGHT_FILES = (".safetensors", ".safetensors.index.json")


@dataclass(frozen=True)
class Progress:
    """Progress of a download."""

    stage: str
    """`downloading`, `verifying` or `converting`."""
    done: int
    total: int
    blobs: dict[str, int]
    """Blobs of the download and their sizes; empty for a starter."""


Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class _File:
    name: str
    blob: str
    size: int
    url: str


def download_hub_model(name: str, token: str | None, tell: Tell, weights: bool = True) -> Path:
    """Download what training needs of a model, without its weights if `weights` is False; returns
    its folder. Raises ModelError."""
    with hub_problems(name):
        commit, files = _list_files(name, token, weights)
        blobs = {file.blob: file.size for file in files}
        total = sum(blobs.values())
        repo = repo_folder(name)
        (repo / "blobs").mkdir(parents=True, exist_ok=True)
        _remove_outdated(repo, blobs)
        check_room(name, total - blob_bytes(name, blobs))
        with _reporting(name, blobs, tell):
            _fetch_all(name, repo, files, token)
        tell(Progress("downloading", total, total, blobs))
        return _link(name, commit, files, token)


def _list_files(name: str, token: str | None, weights: bool) -> tuple[str, list[_File]]:
    from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url

    api = HfApi(token=token)
    about = api.model_info(name, files_metadata=True)
    commit = about.sha or "main"
    wanted = wanted_files({one.rfilename: one.size or 0 for one in about.siblings or ()})
    if not any(file.name.endswith(".safetensors") for file in wanted):
        raise ModelError.of(
            "model.not_safetensors",
            f"{name} has no safetensors weights.",
            "Choose another model, or a repository with safetensors weights.",
        )
    files = []
    for file in wanted:
        if not weights and file.name.endswith(WEIGHT_FILES):
            continue
        url = hf_hub_url(name, file.name, revision=commit, endpoint=api.endpoint)
        found = get_hf_file_metadata(url, token=token, endpoint=api.endpoint)
        if not found.etag or "/" in found.etag or found.size is None:
            raise ModelError.of(
                "models.hub_failed",
                f"The hub does not report the size of {file.name} of {name}.",
                "Try again later.",
            )
        files.append(_File(file.name, found.etag, found.size, url))
    return commit, files


def _remove_outdated(repo: Path, blobs: dict[str, int]) -> None:
    """Delete partial files of a version that the hub no longer offers."""
    for part in repo.glob(f"blobs/*{PART}"):
        if part.name.removesuffix(PART) not in blobs:
            part.unlink()


def _fetch_all(name: str, repo: Path, files: list[_File], token: str | None) -> None:
    unique = {file.blob: file for file in files}.values()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(_fetch, name, repo, file, token) for file in unique]
        try:
            for job in concurrent.futures.as_completed(jobs):
                job.result()
        except BaseException:
            for job in jobs:
                job.cancel()
            raise


def _fetch(name: str, repo: Path, file: _File, token: str | None) -> None:
    """Download one blob, from where its partial file ends, and verify it."""
    from huggingface_hub import constants

    target = repo / "blobs" / file.blob
    if target.exists():
        return
    if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        raise ModelError.of(
            "models.file_too_large",
            f"{file.name} of {name} is larger than the hub's limit for one download "
            f"({constants.MAX_HTTP_DOWNLOAD_SIZE / 1e9:.0f} GB).",
            f"Download the model with `hf download {name}`; Atelier finds it in the cache.",
        )
    part = target.with_name(f"{file.blob}{PART}")
    with part.open("ab") as arriving:
        if arriving.tell() > file.size:
            arriving.truncate(0)
            arriving.seek(0)
        _receive(file, arriving, token)
    _verify(name, file, part)
    sync(part)
    move_into_place(part, target)


def _receive(file: _File, arriving: BinaryIO, token: str | None) -> None:
    """Append the rest of a file, reconnecting when the connection is cut or the hub is overloaded.
    huggingface_hub's own `http_get` writes blocks of 10 MB, and loses one at every cut."""
    from httpx import TransportError
    from huggingface_hub.errors import HfHubHTTPError

    failures = 0
    while (begin := arriving.tell()) < file.size:
        error: Exception | None = None
        try:
            _stream(file, arriving, token)
        except TransportError as cut:
            error = cut
        except HfHubHTTPError as refused:
            if refused.response.status_code not in PASSING:
                raise
            error = refused
        failures = 0 if arriving.tell() > begin else failures + 1
        if failures > MOST_FAILURES:
            raise error or OSError(f"the hub stopped sending {file.name} too early")
        if arriving.tell() < file.size:
            time.sleep(RETRY_S)


def _stream(file: _File, arriving: BinaryIO, token: str | None) -> None:
    """Append what one connection delivers. Raises httpx.TransportError, HfHubHTTPError."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    begin = arriving.tell()
    headers = {**build_hf_headers(token=token), "accept-encoding": "identity"}
    if begin:
        headers["range"] = f"bytes={begin}-"
    with get_session().stream("GET", file.url, headers=headers) as response:
        if response.is_error:
            response.read()
        hf_raise_for_status(response)
        if begin and response.status_code != PARTIAL_CONTENT:  # it has sent the whole file
            arriving.truncate(0)
            arriving.seek(0)
        for block in response.iter_bytes():
            arriving.write(block)


def _verify(name: str, file: _File, part: Path) -> None:
    whole = part.stat().st_size == file.size
    if whole and len(file.blob) == SHA256_DIGITS:
        whole = sha256_of(part) == file.blob
    if not whole:
        part.unlink()
        raise ModelError.of(
            "models.damaged_download",
            f"{file.name} of {name} arrived damaged and was deleted.",
            "Start the download again; the other files are kept.",
        )


def _link(name: str, commit: str, files: list[_File], token: str | None) -> Path:
    """Make the snapshot's links, config.json last, and the cache's note of the version."""
    from huggingface_hub import constants, hf_hub_download

    folder = repo_folder(name) / "snapshots" / commit
    for file in sorted(files, key=lambda file: file.name == "config.json"):
        hf_hub_download(
            name,
            file.name,
            revision=commit,
            cache_dir=hub_cache(),
            token=token,
            endpoint=constants.ENDPOINT,
        )
    refs = repo_folder(name) / "refs"
    refs.mkdir(exist_ok=True)
    replace_file(refs / "main", commit)
    return folder


class _reporting:
    """Report the bytes on disk every `TICK_S` seconds during the block."""

    def __init__(self, name: str, blobs: dict[str, int], tell: Tell) -> None:
        self._name, self._blobs, self._tell = name, blobs, tell
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _report(self) -> None:
        total = sum(self._blobs.values())
        while True:
            done = blob_bytes(self._name, self._blobs)
            stage = "verifying" if done >= total else "downloading"
            self._tell(Progress(stage, done, total, self._blobs))
            if self._ended.wait(TICK_S):
                return
