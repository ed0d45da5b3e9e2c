"""Root folder of an engine in an environment: it contains engine, resources and packaging only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.launcher.engine_root import PARTS, make_engine_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Checkout with a package studio and a copy of the engine_root module."""
    checkout = tmp_path / "checkout"
    for part in (*PARTS, "studio"):
        (checkout / part).mkdir(parents=True)
        (checkout / part / "__init__.py").write_text("")
    launcher = checkout / "engine" / "launcher"
    launcher.mkdir()
    (launcher / "__init__.py").write_text("")
    source = Path(make_engine_root.__code__.co_filename)
    (launcher / "engine_root.py").write_text(source.read_text())
    return checkout


def visible_modules(engine_root: Path) -> str:
    code = "import importlib.util as u; from engine.launcher.engine_root import checkout as c;"
    code += "print(u.find_spec('studio'), c())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=engine_root, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_engine_root_has_links_and_is_reused(root: Path, tmp_path: Path) -> None:
    engine_root = make_engine_root(tmp_path / "home", root)
    assert sorted(one.name for one in engine_root.iterdir()) == sorted(PARTS)
    assert all((engine_root / part).is_symlink() for part in PARTS)
    assert visible_modules(engine_root) == f"None {root}"
    before = engine_root.stat().st_mtime_ns
    assert make_engine_root(tmp_path / "home", root) == engine_root
    assert engine_root.stat().st_mtime_ns == before
    (engine_root / "engine").unlink()
    (engine_root / "engine").symlink_to(tmp_path)
    assert visible_modules(make_engine_root(tmp_path / "home", root)) == f"None {root}"


def test_two_checkouts_have_separate_roots(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    root.rename(other)
    other.joinpath("copy").mkdir()
    assert make_engine_root(tmp_path / "home", root) != make_engine_root(tmp_path / "home", other)


def test_without_symlinks_root_is_a_synchronized_copy(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", no_links)
    engine_root = make_engine_root(tmp_path / "home", root)
    assert not any((engine_root / part).is_symlink() for part in PARTS)
    assert visible_modules(engine_root) == f"None {root}"
    changed = root / "engine" / "new.py"
    changed.write_text("")
    os.utime(changed, (2e9, 2e9))
    make_engine_root(tmp_path / "home", root)
    assert (engine_root / "engine" / "new.py").exists()
    before = (engine_root / "engine" / "new.py").stat().st_ino
    make_engine_root(tmp_path / "home", root)
    assert (engine_root / "engine" / "new.py").stat().st_ino == before
