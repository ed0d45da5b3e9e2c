"""Paths of the resource files: next to the package in a checkout, inside it in a wheel."""

from functools import cache
from pathlib import Path


@cache
def resources_dir() -> Path:
    """The `resources/` folder. Raises FileNotFoundError if the installation is incomplete."""
    here = Path(__file__).resolve().parents[1]
    for candidate in (here.parent / "resources", here / "resources"):
        if (candidate / "theme").is_dir():
            return candidate
    raise FileNotFoundError(f"Atelier is incomplete: no resources/ folder beside {here}")


def resource(*parts: str) -> Path:
    """Path of a resource, for example `resource("icons", "play.svg")`."""
    return resources_dir().joinpath(*parts)
