#!/usr/bin/env python3
"""From a fresh clone to a running Atelier with nothing but Python and pip.

    python3 packaging/bootstrap.py run     open the studio (in the terminal without a display)
    python3 packaging/bootstrap.py test    run every check and test (with --long: the long ones too)
    python3 packaging/bootstrap.py setup   install only
    python3 packaging/bootstrap.py docs    build the documentation as a static site
    python3 packaging/bootstrap.py mutants measure by mutation how much the unit tests find

Everything installed is pinned with hashes in packaging/locks. What is done already is not done
again; what was cut off goes on where it stopped.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from base import BIN, PYTHON, ROOT, Failed, ensure_command, ensure_environment, ensure_packages, say
from docs import add_docs, command_docs
from door import add_commands, command_environment, command_wheels
from mutants import add_mutants, command_mutants
from variables import drop_secrets, without_secrets

STARTER = "smollm2-135m-instruct"
LIBRARIES = ["libgl1", "libegl1", "libglib2.0-0", "libxkbcommon0", "libdbus-1-3", "libfontconfig1"]
"""What Qt needs to be imported, as Debian packages."""

CHECKS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["lint-imports", "--no-cache"],
]
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

TEST_LIBRARIES = ["xvfb", "xauth", "xdotool", "podman"]


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
    test.add_argument(
        "--long",
        action="store_true",
        help="also tests that take minutes or need a second large environment, such as vLLM",
    )
    test.add_argument("pytest", nargs="*", help="arguments for pytest; none runs everything")
    test.set_defaults(command=command_test)
    setup = commands.add_parser("setup", help="install only")
    setup.set_defaults(command=command_setup)
    add_commands(commands)
    add_docs(commands)
    add_mutants(commands)
    arguments, rest = parser.parse_known_args()
    arguments.rest = rest
    installing = (command_setup, command_environment, command_wheels, command_docs, command_mutants)
    if arguments.command in installing:
        drop_secrets()
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
    say(f'The command line is {BIN / "atelier"}; to call it by name: PATH="{BIN}:$PATH"')
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
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    if arguments.long:
        environment["ATELIER_LONG"] = "1"
    workers = (os.cpu_count() or 1) * 3 // 2  # a third of the time they wait
    everything = ["-n", str(max(1, min(6, workers))), "--dist", "worksteal"]
    tests = ["pytest", *(chosen or everything)]
    say(f"$ {' '.join(tests)}")
    with ThreadPoolExecutor(1) as beside:  # tests wait at times, and the checks use that
        checks = beside.map(check, [] if chosen else CHECKS)
        code = subprocess.call([str(BIN / tests[0]), *tests[1:]], cwd=ROOT, env=environment)
        failed = [name for name in checks if name] + ["pytest"] * bool(code)
    if failed:
        raise Failed(f"Failed: {', '.join(failed)}.")
    return 0


def check(command: list[str]) -> str:
    """Run one check and print its output whole; returns its name if it failed."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    say(f"\n$ {' '.join(command)}\n{done.stdout.strip()}")
    return command[0] if done.returncode else ""


def set_up(locks: list[str], libraries: list[str]) -> None:
    """Environment, packages, system libraries, starter model: whatever is not there yet."""
    begun = time.monotonic()
    ensure_environment()
    ensure_command()
    with ThreadPoolExecutor(1) as beside:
        installing = beside.submit(ensure_libraries, libraries)
        ensure_packages(locks)
        if not installing.result():
            check_qt()
    ensure_model()
    say(f"Ready after {time.monotonic() - begun:.0f} s.")


def ensure_libraries(packages: list[str]) -> bool:
    """Install system libraries on Debian and its kin; returns False on other systems."""
    if not sys.platform.startswith("linux") or not shutil.which("dpkg-query"):
        return False
    missing = [name for name in packages if not is_installed(name)]
    if not missing:
        return True
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise Failed(f"Some system libraries are missing. Type:\n\n  sudo {' '.join(command)}\n")
    say(f"Installing system libraries: {', '.join(missing)}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**without_secrets(), "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.call(["apt-get", "update"], env=environment, **quiet)
    if subprocess.call(command, env=environment, **quiet):
        raise Failed(f"apt-get could not install them. Try it yourself:\n\n  {' '.join(command)}\n")
    return True


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "-W", "-f", "${Status}", package]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.endswith("ok installed")


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
    code = "from engine.launcher.local import default_workspace as w; print(w())"
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


if __name__ == "__main__":
    sys.exit(main())
