"""Wheels for another machine: correct, verified, downloaded once."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def download_wheels(*arguments: str, cache: Path, code: int = 0) -> dict:
    command = [sys.executable, str(ROOT / "packaging" / "bootstrap.py"), "wheels", *arguments]
    done = subprocess.run(
        [*command, "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_uv_for_another_machine_is_downloaded_once(tmp_path: Path) -> None:
    """The wheel contains the program of the other machine."""
    here = download_wheels("uv", "--machine", "x86_64", cache=tmp_path)["files"]
    arm = download_wheels("uv", "--machine", "aarch64", cache=tmp_path)["files"]
    for downloads, machine in ((here, "x86_64"), (arm, "aarch64")):
        (file,) = [Path(one["file"]) for one in downloads]
        assert machine in file.name
        with zipfile.ZipFile(file) as wheel:
            program = next(name for name in wheel.namelist() if name.endswith("/scripts/uv"))
            assert wheel.read(program)[:4] == b"\x7fELF"
    changed = Path(here[0]["file"]).stat().st_mtime_ns
    again = download_wheels("uv", "--machine", "x86_64", cache=tmp_path)["files"]
    assert Path(again[0]["file"]).stat().st_mtime_ns == changed


def test_markers_are_evaluated_for_the_other_machine() -> None:
    """Read a lock for another machine with pip's own markers."""
    code = (
        "import sys; sys.path.insert(0, 'packaging')\n"
        "from another import Another, platforms\n"
        "there = Another('engine-cpu', 'aarch64', '2.36', '3.12')\n"
        "names = {one.name for one in there.requirements()}\n"
        "assert 'colorama' not in names, names\n"
        "assert {'torch', 'pip', 'uvicorn', 'asyncssh'} <= names, names\n"
        "tags = platforms('x86_64', '2.28')\n"
        "assert 'manylinux_2_28_x86_64' in tags and 'manylinux_2_29_x86_64' not in tags\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
