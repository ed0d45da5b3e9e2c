#!/usr/bin/env python3
"""From a fresh clone to a running Atelier with nothing but Python and pip.

    python3 packaging/bootstrap.py run     open the studio (in the terminal without a display)
    python3 packaging/bootstrap.py test    run every check and test
    python3 packaging/bootstrap.py setup   install only

Everything installed is pinned with hashes in packaging/locks. What is done already is not done
again; what was cut off goes on where it stopped.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import environments
import place

ROOT = Path(__file__).resolve().parents[1]
ORIGIN = ROOT / "origin.txt"
"""Beside a copy of us in another environment: the checkout whose .venv we work with."""
LOCKS = ROOT / "packaging" / "locks"
VENV = (Path(ORIGIN.read_text().strip()) if ORIGIN.exists() else ROOT) / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "atelier-installed.json"
STARTER = "smollm2-135m-instruct"
PYTHONS = ((3, 11), (3, 12), (3, 13))

LIBRARIES = ["libgl1", "libegl1", "libglib2.0-0", "libxkbcommon0", "libdbus-1-3", "libfontconfig1"]
"""What Qt needs to be imported, as Debian packages."""

WINDOW_LIBRARIES = [
    "libxcb-cursor0",
    "libxkbcommon-x11-0",
    "libxcb-icccm4",
    "libxcb-keysyms1",
    "libxcb-shape0",
    "libxcb-xkb1",
    "libxcb-render-util0",
    "libxcb-image0",
    "libxcb-randr0",
    "libxcb-xinerama0",
    "xkb-data",
]
"""What an X11 window needs besides."""

TEST_LIBRARIES = ["xvfb", "xauth", "xdotool"]


class Failed(Exception):
    """Said to the person as it is; exit 1."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py", description="Install Atelier, and run or test it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="open the studio; without a display, train in the terminal"
    )
    run.add_argument(
        "--terminal", action="store_true", help="train in the terminal even with a display"
    )
    run.add_argument("--steps", type=int, help="steps to train in the terminal")
    run.set_defaults(command=command_run)
    test = commands.add_parser("test", help="lint, types, contracts and all tests")
    test.add_argument("pytest", nargs="*", help="arguments for pytest; none runs everything")
    test.set_defaults(command=command_test)
    setup = commands.add_parser("setup", help="install only")
    setup.set_defaults(command=command_setup)
    environment = commands.add_parser(
        "environment", help="install an environment of its own; the last line is its Python"
    )
    environment.add_argument("name", choices=[*sorted(place.KINDS), "all"])
    environment.add_argument(
        "action",
        nargs="?",
        default="install",
        choices=["install", "verify", "repair", "remove", "sweep", "status"],
        help="sweep clears away what newer ones have replaced; all has only a status",
    )
    environment.add_argument(
        "--spare", type=Path, action="append", default=[], help="with sweep: this folder is needed"
    )
    environment.add_argument("--json", action="store_true", help="progress as JSON lines")
    environment.add_argument("--life", type=int, help="a pipe: at its end everything here ends")
    environment.set_defaults(command=command_environment)
    arguments, rest = parser.parse_known_args()
    arguments.rest = rest
    try:
        return arguments.command(arguments)
    except Failed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Running the same command again goes on from here.", file=sys.stderr)
        return 130


def command_setup(arguments: argparse.Namespace) -> int:
    set_up(["engine-cpu", "studio"], LIBRARIES + WINDOW_LIBRARIES)
    return 0


def command_run(arguments: argparse.Namespace) -> int:
    set_up(["engine-cpu", "studio"], LIBRARIES + WINDOW_LIBRARIES)
    project = sample_project()
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.name == "nt"
    if (display or sys.platform == "darwin") and not arguments.terminal:
        return subprocess.call([str(PYTHON), "-m", "studio", "--project", str(project)], cwd=ROOT)
    say("There is no display: training in the terminal. Ctrl C stops after the step.")
    steps = ["--steps", str(arguments.steps)] if arguments.steps else []
    return subprocess.call([str(PYTHON), "-m", "engine", "train", str(project), *steps], cwd=ROOT)


def command_test(arguments: argparse.Namespace) -> int:
    set_up(["engine-cpu", "studio", "test"], LIBRARIES + WINDOW_LIBRARIES + TEST_LIBRARIES)
    chosen = arguments.pytest + arguments.rest
    checks = (
        []
        if chosen
        else [
            ["ruff", "check", "."],
            ["ruff", "format", "--check", "."],
            ["mypy"],
            ["lint-imports", "--no-cache"],
        ]
    )
    failed = []
    everything = ["-n", str(min(4, os.cpu_count() or 1)), "--dist", "worksteal"]
    for check in [*checks, ["pytest", *(chosen or everything)]]:
        say(f"$ {' '.join(check)}")
        program = str(BIN / check[0])
        if subprocess.call(
            [program, *check[1:]], cwd=ROOT, env={**os.environ, "QT_QPA_PLATFORM": "offscreen"}
        ):
            failed.append(check[0])
    if failed:
        raise Failed(f"Failed: {', '.join(failed)}.")
    return 0


def command_environment(arguments: argparse.Namespace) -> int:
    if arguments.life is not None:
        threading.Thread(target=end_with, args=(arguments.life,), daemon=True).start()
    tell = Teller(arguments.json)
    try:
        act(arguments.name, arguments.action, arguments.spare, tell)
    except place.Refusal as refusal:
        tell.refuse(refusal)
        return 1
    except Failed as failure:
        tell.refuse(place.Refusal("environment.not_installed", str(failure)))
        return 1
    return 0


def act(name: str, action: str, spared: list[Path], tell: "Teller") -> None:
    """Raises Refusal, or Failed where .venv itself could not be made."""
    ensure_environment()
    if action == "status":
        names = sorted(place.KINDS) if name == "all" else [name]
        for one in names:
            tell.answer(environments.status(place_of(one)))
        return
    if name == "all":
        raise place.Refusal("environment.unknown", "all has only a status.")
    here = place_of(name)
    if action in ("install", "repair"):
        ensure_pip()
        if here.kind.below and not here.home():
            ensure_packages([here.kind.below])
        work = environments.install if action == "install" else environments.repair
        home = work(here, tell)
        tell.done(home, place.python_of(home))
    elif action == "verify":
        if wrong := environments.verify(here, tell):
            raise place.Refusal(
                "environment.damaged",
                f"The {name} environment is damaged: {wrong[0]}",
                "Repair it: a new one is made beside it.",
                "\n".join(wrong),
            )
        home = here.home()
        assert home is not None
        tell.done(home, place.python_of(home))
    elif action == "remove":
        environments.remove(here, tell)
    else:
        environments.sweep(here, spared, tell)


def place_of(name: str) -> place.Place:
    return place.Place(name, LOCKS, VENV)


class Teller:
    """What happens, as words, or as one JSON object a line on what was stdout; then all that
    anybody else prints goes to stderr."""

    def __init__(self, as_json: bool) -> None:
        self._lines = os.fdopen(os.dup(1), "w") if as_json else None
        self._stage = ""
        if as_json:
            os.dup2(2, 1)

    def __call__(self, stage: str, done: int, total: int, words: str) -> None:
        if self._lines:
            self._write({"stage": stage, "done": done, "total": total, "words": words})
        elif stage != self._stage:
            self._stage = stage
            say(f"{stage.capitalize()}: {words if stage == 'waiting' else f'{total} in all'}")

    def done(self, home: Path, python: Path) -> None:
        if self._lines:
            self._write({"stage": "ready", "home": str(home), "python": str(python)})
        else:
            say(str(python))

    def answer(self, values: dict[str, object]) -> None:
        if self._lines:
            self._write(values)
        else:
            say(f"{values['name']}: {values['state']} {values['home']}".rstrip())

    def refuse(self, refusal: place.Refusal) -> None:
        names = ("code", "message", "hint", "detail")
        if self._lines:
            self._write({"problem": {name: getattr(refusal, name) for name in names}})
        else:
            print(f"\n{refusal.detail}\n{refusal}".lstrip(), file=sys.stderr)

    def _write(self, values: dict[str, object]) -> None:
        assert self._lines is not None
        self._lines.write(json.dumps(values) + "\n")
        self._lines.flush()


def end_with(descriptor: int) -> None:
    """At the end of the pipe, whoever asked is gone: pip and we go too."""
    os.read(descriptor, 1)
    os.killpg(0, signal.SIGKILL)


def set_up(locks: list[str], libraries: list[str]) -> None:
    """Environment, packages, system libraries, starter model: whatever is not there yet."""
    begun = time.monotonic()
    ensure_environment()
    ensure_packages(locks)
    ensure_libraries(libraries)
    ensure_model()
    say(f"Ready after {time.monotonic() - begun:.0f} s.")


def ensure_environment() -> None:
    if PYTHON.exists():
        return
    interpreter = find_python()
    say(f"Making .venv with {interpreter}")
    scratch = ROOT / ".venv.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    done = subprocess.run([interpreter, "-m", "venv", str(VENV)], check=False)
    if done.returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        hint = (
            "apt-get install python3-venv" if shutil.which("apt-get") else "install Python's venv"
        )
        raise Failed(f"{interpreter} could not make an environment. Try: {hint}")


def find_python() -> str:
    """This interpreter if it is 3.11, else the first fitting one on PATH, else this one."""
    if sys.version_info[:2] == PYTHONS[0]:
        return sys.executable
    for major, minor in PYTHONS:
        found = shutil.which(f"python{major}.{minor}")
        if found and succeeds([found, "-c", "import venv"]):
            return found
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    raise Failed(
        f"Atelier needs Python 3.11, 3.12 or 3.13; this is {platform.python_version()} and no "
        "other was found. Install one and run the command again."
    )


def ensure_packages(locks: list[str]) -> None:
    files = [LOCKS / f"{name}.txt" for name in locks]
    wanted = {file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    missing = [file for file in files if stamped().get(file.stem) != wanted[file.stem]]
    if not missing:
        return
    ensure_pip()
    installed = stamped()
    for file in missing:
        install(file.stem, file)
        installed[file.stem] = wanted[file.stem]
        STAMP.write_text(json.dumps(installed))
    if "engine-cpu" in locks:
        ensure_torch()


def stamped() -> dict[str, str]:
    """What was installed into .venv, by set: the hash of its lock."""
    return json.loads(STAMP.read_text()) if STAMP.exists() else {}


def ensure_pip() -> None:
    """The pip of the lock: older ones do not say how far they are."""
    if "pip" not in (installed := stamped()):
        install("pip", LOCKS / "pip.txt", quiet=True)
        STAMP.write_text(json.dumps({**installed, "pip": "1"}))


def install(name: str, lock: Path, quiet: bool = False) -> None:
    count = sum("==" in line and line[0] != " " for line in lock.read_text().splitlines())
    if not quiet:
        say(f"Installing {name}: {count} packages")
    pip_or_fail(["install", "--no-deps", "--require-hashes", "-r", str(lock)], name)


def ensure_torch() -> None:
    """The pinned torch, from wherever pip finds it; its hash must be one of the lock's.

    Where that is a CUDA build, the NVIDIA libraries that it needs come too.
    """
    pinned, *hashes = (LOCKS / "torch.txt").read_text().replace("\\", "").split()
    if not succeeds(
        [str(PYTHON), "-c", f"import torch; assert torch.__version__ >= {pinned[7:]!r}"]
    ):
        say(f"Installing {pinned}")
        wheels = VENV / "downloads"
        pip_or_fail(["download", "--no-deps", "--dest", str(wheels), pinned], "torch")
        wheel = next(wheels.glob("torch-*.whl"))
        if f"--hash=sha256:{place.sha256(wheel)}" not in hashes:
            wheel.unlink()
            raise Failed("The torch that arrived is not the locked one (its hash differs).")
        pip_or_fail(["install", "--no-deps", str(wheel)], "torch")
        shutil.rmtree(wheels)
    if not succeeds([str(PYTHON), "-c", "import torch"]):
        say("This torch is a CUDA build: installing the libraries it needs (about 3 GB)")
        pip_or_fail(["install", pinned], "torch")


def pip_or_fail(arguments: list[str], name: str) -> None:
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "5"]
    if subprocess.call([*pip, *arguments], cwd=ROOT):
        raise Failed(
            f"The packages of {name} could not be installed (pip says why above). "
            "What has arrived is kept: run the same command again."
        )


def ensure_libraries(packages: list[str]) -> None:
    """System libraries on Debian and its kin; elsewhere Qt brings or names what it needs."""
    if not sys.platform.startswith("linux") or not shutil.which("dpkg-query"):
        check_qt()
        return
    missing = [name for name in packages if not is_installed(name)]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise Failed(f"Some system libraries are missing. Type:\n\n  sudo {' '.join(command)}\n")
    say(f"Installing system libraries: {', '.join(missing)}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.call(["apt-get", "update"], env=environment, **quiet)
    if subprocess.call(command, env=environment, **quiet):
        raise Failed(f"apt-get could not install them. Try it yourself:\n\n  {' '.join(command)}\n")


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "-W", "-f", "${Status}", package]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.endswith("ok installed")


def succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, cwd=ROOT).returncode == 0


def check_qt() -> None:
    done = subprocess.run(
        [str(PYTHON), "-c", "import PySide6.QtWidgets"], capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        raise Failed(f"Qt does not load: {last}\nInstall the library it names and run this again.")


def ensure_model() -> None:
    code = subprocess.call(
        [str(PYTHON), "-m", "engine", "models", "pull", STARTER],
        cwd=ROOT,
        stdout=None if not model_is_here() else subprocess.DEVNULL,
    )
    if code:
        raise Failed("The starter model could not be brought here. Run the same command again.")


def model_is_here() -> bool:
    done = subprocess.run(
        [str(PYTHON), "-m", "engine", "models", "path", STARTER], cwd=ROOT, capture_output=True
    )
    return done.returncode == 0


def sample_project() -> Path:
    """The user's own copy of the smallest sample, made once."""
    code = "from engine.launch.local import default_workspace as w; print(w())"
    done = subprocess.run(
        [str(PYTHON), "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    project = Path(done.stdout.strip()) / "hello"
    if not (project / "project.toml").exists():
        subprocess.check_call(
            [str(PYTHON), "-m", "engine", "new", str(project), "--sample", "hello"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
    return project


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
