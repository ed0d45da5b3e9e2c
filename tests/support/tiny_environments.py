"""Small checkout: the real bootstrap and engine, locks of generated packages, and a local package
index that serves them to pip.

Its GPU engine is complete: fake torch, vLLM and Unsloth (with a package named studio, like the
real one), and beneath them the packages of the environment that runs the tests.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
PARTS = ("engine", "resources")
BELOW = sysconfig.get_paths()["purelib"]
PACKAGES = {
    "torch": {"torch.py": "", "transformers.py": "", "peft.py": "", "below.pth": BELOW + "\n"},
    "vllm": {"vllm.py": "", "vllm_data.bin": "v" * 300_000},
    "unsloth": {"unsloth.py": "", "studio/__init__.py": "OWNER = 'unsloth'\n"},
    "unsloth-zoo": {"unsloth_zoo.py": ""},
    "trl": {"trl.py": ""},
    "pyarrow": {"pyarrow/__init__.py": "", "pyarrow/parquet.py": ""},
    "thrift": {"thrift.py": "WORDS = 'whole'\n"},
}
GPU = ("torch", "vllm", "unsloth", "unsloth-zoo", "trl")
LOCKS: dict[str, tuple[str, ...]] = {"engine-gpu": GPU, "parquet": ("pyarrow", "thrift")}


class Index(ThreadingHTTPServer):
    """PEP 503 index of a folder; counts downloads, and can be slow or tamper with files."""

    daemon_threads = True

    def __init__(self, wheels: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheels = wheels
        self.fetched: Counter[str] = Counter()
        self.delay_s = 0.0
        self.tampered = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple/"


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        last = self.path.rstrip("/").rpartition("/")[2]
        if not last.endswith(".whl"):
            files = self.server.wheels.glob(f"{last.replace('-', '_')}-*.whl")
            links = "".join(f'<a href="/files/{file.name}">{file.name}</a>' for file in files)
            return self._answer(f"<html><body>{links}</body></html>".encode(), "text/html")
        self.server.fetched[last.partition("-")[0]] += 1
        time.sleep(self.server.delay_s)
        body = (self.server.wheels / last).read_bytes()
        if self.server.tampered and last.startswith(self.server.tampered):
            body += b"!"
        self._answer(body, "application/zip")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@dataclass
class Checkout:
    """Checkout; `run("environments", "list")` runs `atelier environments list` in it."""

    folder: Path
    index: Index
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return Path(self.variables["XDG_CACHE_HOME"]) / "atelier"

    def homes(self, name: str) -> list[Path]:
        return sorted(self.cache.glob(f"environments/{name}-*.*/ready"))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "engine", *arguments]

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        command = self.command(*arguments)
        return subprocess.Popen(command, cwd=self.folder, env=self.variables, **options)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def python(self, code: str) -> str:
        """Run code with the checkout's Python, and return its output."""
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder, env=self.variables,
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def size(self, name: str, download_mb: float, installed_mb: float) -> None:
        """Set the expected sizes of an environment."""
        file = self.folder / "packaging" / "locks" / "sizes.json"
        file.write_text(
            json.dumps({**json.loads(file.read_text()), name: [download_mb, installed_mb]})
        )


def make_checkout(folder: Path) -> Checkout:
    tree = folder / "checkout"
    locks = tree / "packaging" / "locks"
    locks.mkdir(parents=True)
    for file in (ROOT / "packaging").glob("*.py"):
        shutil.copy(file, tree / "packaging")
    shutil.copytree(ROOT / "engine", tree / "engine")
    for link, target in (("resources", ROOT / "resources"), ("studio", ROOT / "studio")):
        (tree / link).symlink_to(target)
    (tree / ".venv").symlink_to(Path(sys.prefix).resolve())
    wheels = folder / "wheels"
    wheels.mkdir()
    made = {name: make_wheel(wheels, name, files) for name, files in PACKAGES.items()}
    for lock in (ROOT / "packaging" / "locks").glob("*.txt"):
        pins = LOCKS.get(lock.stem, ("thrift",))
        (locks / lock.name).write_text("".join(pin(made[name]) for name in pins))
    sizes = json.loads((ROOT / "packaging" / "locks" / "sizes.json").read_text())
    (locks / "sizes.json").write_text(json.dumps({name: [0.5, 1] for name in sizes}))
    index = Index(wheels)
    threading.Thread(target=index.serve_forever, name="index", daemon=True).start()
    return Checkout(tree, index, variables(folder, index))


def variables(folder: Path, index: Index) -> dict[str, str]:
    """Return variables for a home of its own; pip is configured by them."""
    values = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    for name in ("CONFIG", "DATA", "STATE", "CACHE", "RUNTIME"):
        place = folder / "xdg" / name.lower()
        place.mkdir(parents=True, mode=0o700)
        values[f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}"] = str(place)
    return {**values, "PIP_INDEX_URL": index.url, "PIP_CONFIG_FILE": os.devnull,
            "ATELIER_WORKSPACE": str(folder / "workspace")}  # fmt: skip


def make_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write a pure Python wheel, version 1.0 (PEP 427)."""
    plain = name.replace("-", "_")
    wheel = folder / f"{plain}-1.0-py3-none-any.whl"
    info = f"{plain}-1.0.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in whole.items())
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in whole.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return wheel


def pin(wheel: Path) -> str:
    name = wheel.name.partition("-")[0].replace("_", "-")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{name}==1.0 \\\n    --hash=sha256:{digest}\n"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def until(condition: Callable[[], object], timeout_s: float = 40) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.01)


def running_processes(checkout: Checkout) -> list[psutil.Process]:
    """Return the processes that were started for this checkout."""
    folder = str(checkout.folder.parent)
    processes = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        if folder in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            processes.append(process)
    return processes
