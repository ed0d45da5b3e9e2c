"""Environments of agents in the cache, by their keys: whoever asked for them may be gone, or ask
for others by now. Standard library only."""

import json
from pathlib import Path

from place import READY, AgentPlace, Kind, cache_folder, generation, is_busy, python_of

BEGINS = "agent-"


class KeptPlace(AgentPlace):
    """One of them, to be looked at and removed; to make it, its requirements file is needed."""

    def __init__(self, name: str, venv: Path) -> None:
        self.kind, self.venv, self.key = Kind(""), venv, name.removeprefix(BEGINS)
        self.download_bytes = self.installed_bytes = 0
        self._lay_out("agent", "the agent")
        note = self._note()
        self.requirements, self.locked = Path(note.get("requirements", "")), True
        self.lock = self.kept / "lock.txt"

    def _note(self) -> dict[str, str]:
        home = self.home()
        return json.loads((home / READY).read_text()) if home else {}

    @property
    def wanted(self) -> bool:
        """Whether the file that it was made for still asks for just this."""
        try:
            return AgentPlace(self.requirements, self.venv).key == self.key
        except (OSError, UnicodeDecodeError):
            return False


def names() -> list[str]:
    """Of all of them, installed or begun."""
    cache = cache_folder()
    pattern = f"{BEGINS}????????????"
    found = [*cache.glob(f"environments/{pattern}.*"), *cache.glob(f"downloads/{pattern}")]
    return sorted({one.name.partition(".")[0] for one in found if one.is_dir()})


def status(place: KeptPlace) -> dict[str, object]:
    """As of any other environment; and for which file it was made, and whether that still asks for
    it."""
    home, homes = place.home(), sorted(place.homes(), key=generation)
    folders = [*homes, place.kept]
    return {
        "name": f"{BEGINS}{place.key}",
        "state": "ready" if home else "partial",
        "home": str(home or ""),
        "python": str(python_of(home)) if home else "",
        "wrong": [],
        "arrived": len(list(place.wheels.glob("*"))),
        "packages": 0,
        "bytes": sum(_size(one) for one in folders),
        "download_bytes": 0,
        "engine": False,
        "homes": [str(one) for one in homes],
        "unfit": "",
        "busy": is_busy(place.turnstile),
        "requirements": str(place.requirements) if home else "",
        "wanted": place.wanted,
    }


def _size(folder: Path) -> int:
    """As it was marked; of what is not whole, counted."""
    if (folder / READY).exists():
        return int(json.loads((folder / READY).read_text())["bytes"])
    return sum(one.lstat().st_size for one in folder.rglob("*") if not one.is_symlink())
