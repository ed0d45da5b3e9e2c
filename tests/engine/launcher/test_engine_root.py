"""Where an engine of an environment stands: it sees engine, resources and packaging, no more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.launcher.engine_root import PARTS, make_engine_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a package studio, and an engine that says where it and its checkout are."""
    made = tmp_path / "checkout"
    for part in (*PARTS, "studio"):
        (made / part).mkdir(parents=True)
        (made / part / "__init__.py").write_text("")
    launch = made / "engine" / "launcher"
    launch.mkdir()
    (launch / "__init__.py").write_text("")
    source = Path(make_engine_root.__code__.co_filename)
    (launch / "engine_root.py").write_text(source.read_text())
    return made


def seen(stand: Path) -> str:
    code = "import importlib.util as u; from engine.launcher.engine_root import checkout as c;"
    code += "print(u.find_spec('studio'), c())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=stand, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_is_links_and_made_once(root: Path, tmp_path: Path) -> None:
    stand = make_engine_root(tmp_path / "home", root)
    assert sorted(one.name for one in stand.iterdir()) == sorted(PARTS)
    assert all((stand / part).is_symlink() for part in PARTS)
    assert seen(stand) == f"None {root}"
    before = stand.stat().st_mtime_ns
    assert make_engine_root(tmp_path / "home", root) == stand
    assert stand.stat().st_mtime_ns == before
    (stand / "engine").unlink()
    (stand / "engine").symlink_to(tmp_path)
    assert seen(make_engine_root(tmp_path / "home", root)) == f"None {root}"


def test_two_checkouts_stand_apart(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    root.rename(other)
    other.joinpath("copy").mkdir()
    assert make_engine_root(tmp_path / "home", root) != make_engine_root(tmp_path / "home", other)


def test_without_links_it_is_a_copy_that_follows(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", no_links)
    stand = make_engine_root(tmp_path / "home", root)
    assert not any((stand / part).is_symlink() for part in PARTS)
    assert seen(stand) == f"None {root}"
    changed = root / "engine" / "new.py"
    changed.write_text("")
    os.utime(changed, (2e9, 2e9))
    make_engine_root(tmp_path / "home", root)
    assert (stand / "engine" / "new.py").exists()
    before = (stand / "engine" / "new.py").stat().st_ino
    make_engine_root(tmp_path / "home", root)
    assert (stand / "engine" / "new.py").stat().st_ino == before
