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
    """Root folder of the source code; if this code runs in a copy, the folder that was copied."""
    root = Path(__file__).resolve().parents[2]
    origin = root / ORIGIN
    return Path(origin.read_text().strip()) if origin.exists() else root


def make_engine_root(home: Path, root: Path) -> Path:
    """Return the folder from which an engine of the checkout `root` is started in the environment
    folder `home`; created or repaired if necessary."""
    root = root.resolve()
    stand = home / "atelier" / hashlib.sha256(str(root).encode()).hexdigest()[:12]
    if not all(_same(stand / part, root / part) for part in PARTS):
        _make(stand, root)
    return stand


def _same(link: Path, part: Path) -> bool:
    return link.is_symlink() and Path(os.readlink(link)) == part


def _make(stand: Path, root: Path) -> None:
    stand.mkdir(parents=True, exist_ok=True)
    try:
        for part in PARTS:
            _link(stand / part, root / part)
    except OSError:  # a file system without links
        _copy(stand, root)


def _link(link: Path, part: Path) -> None:
    if _same(link, part):
        return
    scratch = link.with_name(f".{link.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    scratch.symlink_to(part, target_is_directory=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)  # a copy of before
    scratch.replace(link)


def _copy(stand: Path, root: Path) -> None:
    """Copy the folders again if they have changed; an interrupted copy has no stamp."""
    stamp = _stamp(root)
    if (stand / STAMP).exists() and (stand / STAMP).read_text() == stamp:
        return
    (stand / STAMP).unlink(missing_ok=True)
    for part in PARTS:
        shutil.rmtree(stand / part, ignore_errors=True)
        shutil.copytree(root / part, stand / part, ignore=shutil.ignore_patterns("__pycache__"))
    (stand / ORIGIN).write_text(str(root))
    (stand / STAMP).write_text(stamp)


def _stamp(root: Path) -> str:
    files = [file for part in PARTS for file in (root / part).rglob("*") if file.is_file()]
    kept = [file for file in files if "__pycache__" not in file.parts]
    return f"{len(kept)} {max(file.stat().st_mtime_ns for file in kept)}"


if __name__ == "__main__":
    sys.stdout.write(f"{make_engine_root(Path(sys.argv[1]), Path(sys.argv[2]))}\n")
