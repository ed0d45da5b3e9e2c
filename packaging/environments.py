"""Environments beside .venv, in the user's cache: installed so that no interruption does harm.

Each lives in a folder NAME-KEY.N that was empty when its installation began; a mark, written last,
says that it is whole, and the newest N with a mark counts. Packages arrive in a folder of their own
and stay there until then, so whoever was cut off goes on with what has come. One installation at a
time: the lock is held by pip too, and so for as long as anything is still being written.

Standard library only. `bootstrap.py environment` is the door; see `install`, `verify`, `remove`.
"""

import base64
import csv
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from place import (
    READY,
    AgentPlace,
    Place,
    Refusal,
    Tell,
    digest_of,
    is_busy,
    packages_of,
    python_of,
    version_of,
    write_whole,
)
from wheels import (
    BATCH,
    Requirement,
    download,
    full_or_other,
    lay_down,
    read_lock,
    resolve,
    run_or_refuse,
)

ROOT = Path(__file__).resolve().parents[1]
DAMAGED = "damaged.json"
RESERVE = 500_000_000


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
            if isinstance(place, AgentPlace) and not place.locked:
                resolve(place, tell, held)
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


def put_together(
    place: Place, files: list[tuple[Requirement, Path]], tell: Tell, held: int
) -> Path:
    """A new home out of the kept files, tried, and marked as whole."""
    home = place.fresh()
    tell("installing", 0, len(files), "making an empty environment")
    made = [str(python_of(place.venv)), "-m", "venv", "--without-pip", str(home)]
    run_or_refuse(made, "environment.no_venv", "Python could not make an environment")
    if place.kind.below:
        own, below = packages_of(home), packages_of(place.venv).resolve()
        (own / "below.pth").write_text(f"{below}\n")
    for first in range(0, len(files), BATCH):
        few = files[first : first + BATCH]
        tell("installing", first, len(files), ", ".join(one.name for one, _ in few))
        lay_down(place, home, few, held)
    shutil.rmtree(place.arriving, ignore_errors=True)
    tell("testing", 0, 1, "importing what matters")
    try_out(place, home)
    mark(place, home, len(files))
    return home


def try_out(place: Place, home: Path) -> None:
    """Import what matters inside the new environment; an engine is tried where it will stand."""
    python = python_of(home)
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        if place.kind.engine:
            script = ROOT / "engine" / "launcher" / "engine_root.py"
            done = run_or_refuse(
                [str(python), str(script), str(home), str(ROOT)],
                "environment.no_stand",
                f"The {place.name} environment cannot hold the engine",
            )
            where = Path(done.strip().splitlines()[-1])
        run_or_refuse(
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
    requirements = (
        {"requirements": str(place.requirements.resolve())} if isinstance(place, AgentPlace) else {}
    )
    values = {
        **requirements, "name": place.name, "key": place.key, "engine": place.kind.engine,
        "bytes": size, "packages": packages, "at": time.time(),
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
        tell("testing", 0, 1, "importing what matters")
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
                digest = digest_of(packages / name, method)
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
        "packages": note.get("packages", asked_packages(place)),
        "bytes": note.get("bytes", place.installed_bytes),
        "download_bytes": place.download_bytes,
        "engine": place.kind.engine,
        "homes": [str(one) for one in (*place.homes(), *place.older())],
        "unfit": unfit(place),
        "busy": is_busy(place.turnstile),
    }


def asked_packages(place: Place) -> int:
    """How many a lock names; of a plain requirements file, how many it asks for."""
    if place.lock.exists():
        return len(read_lock(place.lock))
    assert isinstance(place, AgentPlace)
    lines = place.requirements.read_text(encoding="utf-8").splitlines()
    return sum(bool(line.strip()) and line.lstrip()[0] not in "#-" for line in lines)


def unfit(place: Place) -> str:
    try:
        check_machine(place)
    except Refusal as refusal:
        return refusal.message
    return ""
