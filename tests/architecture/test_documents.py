"""README and CHANGELOG: short, with links and pictures that exist."""

import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
TARGET = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
README_WORDS, CHANGELOG_LINES, ANIMATION_BYTES = 900, 90, 3_000_000


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_every_link_leads_to_a_file(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    found = [one or other for one, other in TARGET.findall(text)]
    missing = [one for one in found if "://" not in one and not (ROOT / one).exists()]
    assert not missing


def test_the_readme_is_a_landing_page() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert len(re.sub(r"\]\([^)]*\)", "]", prose).split()) <= README_WORDS
    assert len((ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()) <= CHANGELOG_LINES


@pytest.mark.parametrize("name", ["run", "trajectories"])
def test_the_pictures_come_in_both_themes_at_twice_the_size(name: str) -> None:
    for scheme in ("light", "dark"):
        with Image.open(ROOT / "resources" / "screenshots" / f"{name}-{scheme}.png") as picture:
            assert picture.size == (2560, 1600)


def test_the_animation_moves_and_is_small() -> None:
    file = ROOT / "resources" / "screenshots" / "tour.webp"
    with Image.open(file) as picture:
        assert picture.n_frames > 10  # type: ignore[attr-defined]
    assert file.stat().st_size <= ANIMATION_BYTES
