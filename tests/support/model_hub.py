"""Hugging Face hub on loopback with repositories made in a test: search, pages, files with ranges
and ETags, as huggingface_hub calls them."""

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BLOCK = 16 * 1024


@dataclass
class Repo:
    """Repository with its files and what the hub reports about it."""

    id: str
    files: dict[str, bytes]
    tags: list[str] = field(default_factory=lambda: ["safetensors", "license:apache-2.0"])
    pipeline_tag: str = "text-generation"
    parameters: dict[str, int] = field(default_factory=dict)
    gated: bool = False
    config: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelHub:
    """Running hub; change its fields while it runs."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Range header of all requests."""
    cut_after: int = 0
    """Bytes of the next weights response after which the connection is cut, once; 0: never."""
    block_s: float = 0.0
    """Pause after each `BLOCK` bytes of weights."""
    fails: int = 0
    """Status of all answers, if not 0."""

    def add_folder(self, name: str, folder: Path, **values: Any) -> Repo:
        """Offer the files of a model folder."""
        files = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        config = json.loads(files["config.json"])
        repo = Repo(name, files, config={"architectures": config["architectures"]}, **values)
        self.repos[name] = repo
        return repo

    def ranges(self, file: str) -> list[str]:
        """Range headers of the downloads of a file; empty for a whole one."""
        return [
            wanted
            for method, path, wanted in self.requests
            if method == "GET" and path.endswith(f"/{file}") and wanted != "bytes=0-100000"
        ]


@contextmanager
def model_hub() -> Iterator[ModelHub]:
    """Run a hub for the block."""
    hub = ModelHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that are killed
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ModelHub

    def log_message(self, *arguments: object) -> None:
        """Suppress the access log."""

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        address = urlsplit(self.path)
        self.hub.requests.append((self.command, address.path, self.headers.get("range", "")))
        if self.hub.fails:
            self._answer({"error": "no"}, self.hub.fails)
        elif address.path == "/api/models":
            self._search(parse_qs(address.query))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.+)?", address.path):
            self._page(found[1])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", address.path):
            self._file(found[1], found[2])
        else:
            self._answer({"error": address.path}, 404)

    def _search(self, query: dict[str, list[str]]) -> None:
        words = query.get("search", [""])[0].lower()
        found = [repo for repo in self.hub.repos.values() if words in repo.id.lower()]
        self._answer([_about(repo) for repo in found])

    def _page(self, name: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None:
            return self._refuse(404, "RepoNotFound")
        siblings = [{"rfilename": key, "size": len(body)} for key, body in repo.files.items()]
        self._answer({**_about(repo), "siblings": siblings})

    def _file(self, name: str, file: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None:
            return self._refuse(404, "RepoNotFound")
        if repo.gated:
            return self._refuse(403, "GatedRepo")
        if file not in repo.files:
            return self._refuse(404, "EntryNotFound")
        body = repo.files[file]
        large = file.endswith(".safetensors")
        kind = hashlib.sha256 if large else hashlib.sha1
        start, end = 0, len(body)
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", "")):
            start = int(wanted[1])
            end = min(end, int(wanted[2]) + 1 if wanted[2] else end)
        self.send_response(206 if wanted else 200)
        self.send_header("etag", f'"{kind(body).hexdigest()}"')
        self.send_header("x-repo-commit", COMMIT)
        self.send_header("accept-ranges", "bytes")
        if wanted:
            self.send_header("content-range", f"bytes {start}-{end - 1}/{len(body)}")
        self.send_header("content-length", str(end - start))
        self.end_headers()
        if self.command == "GET":
            self._send(body[start:end], large and self.headers.get("range") != "bytes=0-100000")

    def _send(self, body: bytes, weights: bool) -> None:
        cut = self.hub.cut_after if weights else 0
        if cut:
            self.hub.cut_after = 0
            self.wfile.write(body[:cut])
            self.wfile.flush()
            self.connection.shutdown(2)
            self.close_connection = True
            return
        for begin in range(0, len(body), BLOCK):
            self.wfile.write(body[begin : begin + BLOCK])
            if weights and self.hub.block_s:
                self.wfile.flush()
                time.sleep(self.hub.block_s)

    def _refuse(self, status: int, code: str) -> None:
        self._answer({"error": code}, status, {"x-error-code": code, "x-error-message": code})

    def _answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for key, text in (headers or {}).items():
            self.send_header(key, text)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _about(repo: Repo) -> dict[str, Any]:
    about = {
        "id": repo.id,
        "modelId": repo.id,
        "sha": COMMIT,
        "private": False,
        "gated": "manual" if repo.gated else False,
        "downloads": 1234,
        "likes": 56,
        "tags": repo.tags,
        "pipeline_tag": repo.pipeline_tag,
        "lastModified": "2026-01-02T03:04:05.000Z",
        "config": repo.config,
        "siblings": [],
    }
    if repo.parameters:
        total = sum(repo.parameters.values())
        about["safetensors"] = {"parameters": repo.parameters, "total": total}
    return about
