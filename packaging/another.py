"""Wheels for another machine, brought here: a server that has no way to the package index is given
them. Standard library only, but for pip's own reading of markers.
"""

import hashlib
import shutil
import sys
from pathlib import Path

from base import LOCKS, VENV, ensure_environment, ensure_pip
from place import Refusal, Tell, Turnstile, cache_folder, packages_of, python_of, sha256
from wheels import Requirement, download, keep, kept_files, pip, read_lock

SETS = {
    "uv": ("uv",),
    "engine-cpu": ("pip", "engine-cpu", "torch"),
    "engine-gpu": ("pip", "engine-gpu"),
}
"""What makes an engine of its own, by locks."""
OLDEST_LIBC = 17
CUDA = ("nvidia-", "cuda-", "triton==")
"""What a CUDA build of torch needs to be imported; pinned with it in engine-gpu."""
KEPT = "nvidia-ml-py"


class Another(Turnstile):
    """A set of wheels for a Linux machine that is not this one, in a kept folder.

    `machine` as `uname -m` says it, `libc` of glibc ("2.36"), `python` "3.11".
    """

    def __init__(self, name: str, machine: str, libc: str, python: str) -> None:
        self.machine, self.python, self.venv = machine, python, VENV
        self.locks = [LOCKS / f"{one}.txt" for one in SETS[name]]
        parts = [sha256(one) for one in self.locks] + [machine, libc, python]
        key = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
        self.kept = cache_folder() / "downloads" / f"{name}-for-{machine}-{key}"
        self.wheels, self.arriving = self.kept / "whole", self.kept / "arriving"
        self.lock = self.kept / "lock.txt"
        self.options = (*platforms(machine, libc), "--python-version", python, "--only-binary")
        self.options = (*self.options, ":all:", "--implementation", "cp")
        super().__init__(name, self.kept.with_suffix(".lock"))
        self.words = name

    def requirements(self) -> list[Requirement]:
        """What the machine needs, markers decided; torch's build decides about the rest."""
        found = [one for lock in self.locks for one in read_lock(lock)]
        return [one for one in found if self.holds(one)]

    def holds(self, one: Requirement) -> bool:
        """Whether its marker is true there."""
        _, _, marker = one.pin.partition(";")
        if not marker:
            return True
        vendored = str(packages_of(self.venv) / "pip" / "_vendor")
        if vendored not in sys.path:
            sys.path.insert(0, vendored)
        from packaging.markers import Marker

        there = {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
            "extra": "",
        }
        return bool(Marker(marker.strip()).evaluate(there))


def platforms(machine: str, libc: str) -> tuple[str, ...]:
    """Tags of wheels that a glibc of this version takes (PEP 600), as options of pip."""
    newest = int(libc.split(".")[1])
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, OLDEST_LIBC - 1, -1)]
    tags += [f"manylinux2014_{machine}", f"linux_{machine}"]
    return tuple(word for tag in tags for word in ("--platform", tag))


def bring_wheels(place: Another, tell: Tell) -> list[tuple[Requirement, Path]]:
    """Every file of the set, its hash checked; what has come stays, whoever is cut off. Raises
    Refusal."""
    ensure_environment()
    ensure_pip()
    with place.turn(tell) as held:
        place.wheels.mkdir(parents=True, exist_ok=True)
        wanted = place.requirements()
        torch = next((one for one in wanted if one.name == "torch"), None)
        if torch and place.name == "engine-cpu":
            wanted.remove(torch)
            if not is_cpu_build(file := bring_torch(place, torch, tell, held)):
                wanted += libraries_of(place)
            found = [(torch, file)]
        else:
            found = []
        place.lock.write_text("".join(f"{one.line()}\n" for one in wanted))
        return found + download(place, tell, held, [one for one, _ in found])


def bring_torch(place: Another, torch: Requirement, tell: Tell, held: int) -> Path:
    """From wherever pip finds it: in hash mode it passes over a wheel from a local folder, so the
    hash is checked here."""
    for start, file in kept_files(place).items():
        if start.partition("+")[0] == torch.start:
            return file
    shutil.rmtree(place.arriving, ignore_errors=True)
    came = place.arriving / "files"
    came.mkdir(parents=True)
    (place.arriving / "tmp").mkdir()
    tell("downloading", 0, 1, torch.pin.replace("==", " "))
    asked = ["download", "--no-deps", "--dest", str(came), *place.options]
    pip(place, python_of(place.venv), [*asked, torch.pin.split(";")[0]], held, lambda _: None)
    (file,) = came.iterdir()
    if sha256(file) not in torch.hashes:
        raise Refusal(
            "environment.hash_differs",
            "The torch that arrived is not the locked one: its hash differs.",
            "Somebody changed the file on its way, or at the index: do not use that index.",
        )
    keep(file, place.wheels)
    return place.wheels / file.name


def is_cpu_build(wheel: Path) -> bool:
    return "+cpu" in wheel.name


def libraries_of(place: Another) -> list[Requirement]:
    gpu = read_lock(LOCKS / "engine-gpu.txt")
    return [
        one
        for one in gpu
        if one.pin.startswith(CUDA) and not one.pin.startswith(KEPT) and place.holds(one)
    ]
