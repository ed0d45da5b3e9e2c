"""Wheels for a machine that is not this one: the right files, checked, brought once."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def wheels(*arguments: str, cache: Path, code: int = 0) -> dict:
    command = [sys.executable, str(ROOT / "packaging" / "bootstrap.py"), "wheels", *arguments]
    done = subprocess.run(
        [*command, "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_pinned_uv_of_another_machine(tmp_path: Path) -> None:
    """It is the program of that machine, whatever this one is, and comes once."""
    here = wheels("uv", "--machine", "x86_64", cache=tmp_path)["files"]
    arm = wheels("uv", "--machine", "aarch64", cache=tmp_path)["files"]
    for found, machine in ((here, "x86_64"), (arm, "aarch64")):
        (file,) = [Path(one["file"]) for one in found]
        assert machine in file.name
        with zipfile.ZipFile(file) as wheel:
            program = next(name for name in wheel.namelist() if name.endswith("/scripts/uv"))
            assert wheel.read(program)[:4] == b"\x7fELF"
    changed = Path(here[0]["file"]).stat().st_mtime_ns
    again = wheels("uv", "--machine", "x86_64", cache=tmp_path)["files"]
    assert Path(again[0]["file"]).stat().st_mtime_ns == changed


def test_markers_are_those_of_the_other_machine() -> None:
    """A lock for all machines, read for one: with pip's own reading of its markers."""
    asked = (
        "import sys; sys.path.insert(0, 'packaging')\n"
        "from another import Another, platforms\n"
        "there = Another('engine-cpu', 'aarch64', '2.36', '3.12')\n"
        "names = {one.name for one in there.requirements()}\n"
        "assert 'colorama' not in names, names\n"
        "assert {'torch', 'pip', 'uvicorn', 'asyncssh'} <= names, names\n"
        "tags = platforms('x86_64', '2.28')\n"
        "assert 'manylinux_2_28_x86_64' in tags and 'manylinux_2_29_x86_64' not in tags\n"
    )
    subprocess.run([sys.executable, "-c", asked], cwd=ROOT, check=True)
