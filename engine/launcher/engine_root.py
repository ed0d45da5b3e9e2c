"""Root folder of an engine in an environment that contains a complete one.

Such an environment may have a package named studio (Unsloth installs one), and a process started in
the checkout would import Atelier's package instead. The engine therefore gets a folder inside the
environment that links only to `engine`, `resources` and `packaging` of the checkout. Standard
library only: bootstrap.py runs this module as a script in a new environment.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

PARTS = ("engine", "resources", "packaging")
ORIGIN, STAMP = "origin.txt", "stamp.txt"


def checkout() -> Path:
    """Root folder of the source checkout, even if this code runs in a copy made by
    `make_engine_root`."""
    root = Path(__file__).resolve().parents[2]
    origin = root / ORIGIN
    return Path(origin.read_text().strip()) if origin.exists() else root


def make_engine_root(home: Path, root: Path) -> Path:
    """Return the folder from which an engine of the checkout `root` is started in the environment
    folder `home`; created or repaired if necessary."""
    root = root.resolve()
    folder = home / "atelier" / hashlib.sha256(str(root).encode()).hexdigest()[:12]
    if not all(_same(folder / part, root / part) for part in PARTS):
        _make(folder, root)
    return folder


def _same(link: Path, part: Path) -> bool:
    return link.is_symlink() and Path(os.readlink(link)) == part


def _make(folder: Path, root: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for part in PARTS:
            _link(folder / part, root / part)
    except OSError:  # a file system without links
        _copy(folder, root)


def _link(link: Path, part: Path) -> None:
    if _same(link, part):
        return
    scratch = link.with_name(f".{link.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    scratch.symlink_to(part, target_is_directory=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)  # a copy of before
    scratch.replace(link)


def _copy(folder: Path, root: Path) -> None:
    """Copy the folders again if they have changed; an interrupted copy has no stamp."""
    stamp = _stamp(root)
    if (folder / STAMP).exists() and (folder / STAMP).read_text() == stamp:
        return
    (folder / STAMP).unlink(missing_ok=True)
    for part in PARTS:
        shutil.rmtree(folder / part, ignore_errors=True)
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ORIGIN).write_text(str(root))
    (folder / STAMP).write_text(stamp)


def _stamp(root: Path) -> str:
    files = [file for part in PARTS for file in (root / part).rglob("*") if file.is_file()]
    kept = [file for file in files if "__pycache__" not in file.parts]
    return f"{len(kept)} {max(file.stat().st_mtime_ns for file in kept)}"


if __name__ == "__main__":
    sys.stdout.write(f"{make_engine_root(Path(sys.argv[1]), Path(sys.argv[2]))}\n")
