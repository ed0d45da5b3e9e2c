"""Hugging Face hub stub on loopback: repositories, pre-upload, commits and large files, as
huggingface_hub calls them."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0" * 40


@dataclass
class Hub:
    """Requests received by the hub."""

    token: str
    url: str = ""
    repos: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    refused: int = 0


@contextmanager
def hub(token: str) -> Iterator[Hub]:
    state = Hub(token)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": state}))
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: object) -> None:
        """Suppress the access log."""

    def do_GET(self) -> None:
        if self._is_authorized():
            self._answer({"id": "me/it", "sha": COMMIT, "siblings": [], "private": True})

    def do_POST(self) -> None:
        body = self._body()
        if not self._is_authorized():
            return
        if self.path == "/api/repos/create":
            self.hub.repos.append(json.loads(body))
            self._answer({"url": f"{self.hub.url}/me/it", "id": "me/it"})
        elif self.path == "/api/validate-yaml":
            self._answer({"warnings": [], "errors": []})
        elif "/preupload/" in self.path:
            files = [self._preupload(one) for one in json.loads(body)["files"]]
            self._answer({"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [self._upload(one) for one in json.loads(body)["objects"]]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            self._commit(body)
            url = f"{self.hub.url}/me/it/commit/{COMMIT}"
            self._answer({"commitUrl": url, "commitOid": COMMIT, "success": True})
        else:
            self._answer({"error": self.path}, 404)

    def do_PUT(self) -> None:
        self.hub.large[self.path.rpartition("/")[2]] = self._body()
        self._answer({})

    def _preupload(self, one: dict[str, Any]) -> dict[str, Any]:
        mode = "lfs" if one["path"].endswith((".safetensors", ".gguf")) else "regular"
        return {"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _upload(self, one: dict[str, Any]) -> dict[str, Any]:
        href = f"{self.hub.url}/put/{one['oid']}"
        return {**one, "actions": {"upload": {"href": href, "header": {}}}}

    def _commit(self, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.hub.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.hub.files[value["path"]] = self.hub.large[value["oid"]]

    def _is_authorized(self) -> bool:
        if self.headers.get("authorization") == f"Bearer {self.hub.token}":
            return True
        self.hub.refused += 1
        self._answer({"error": "Invalid username or password."}, 401)
        return False

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
