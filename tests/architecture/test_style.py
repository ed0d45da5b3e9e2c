"""House rules that no linter knows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "studio").rglob("*.py")])
LIMIT = 400
BANNED_NAMES = {"utils.py", "helpers.py", "manager.py", "common.py", "misc.py"}


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(ROOT)))
def test_files_keep_their_proportion(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= LIMIT
    assert file.name not in BANNED_NAMES


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(f.relative_to(ROOT))
        for f in SOURCES
        if f.read_text().strip() and not f.read_text().lstrip().startswith(('"""', 'r"""', "#!"))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (r"\.exec\(", set()),
        (r"#[0-9a-fA-F]{6}\b", set()),
        (r"\.setStyleSheet\(", {"studio/theme.py"}),
        (r"\.setToolTip\(|QToolTip|QMessageBox", {"studio/plain_tip.py"}),
        (r"\.setHtml\(|\.setMarkdown\(", {"studio/help.py"}),  # our own texts
        (r"@asyncSlot|asyncClose", set()),
    ],
)
def test_studio_never_does(pattern: str, allowed: set[str]) -> None:
    found = {
        str(f.relative_to(ROOT))
        for f in (ROOT / "studio").rglob("*.py")
        if re.search(pattern, f.read_text())
    }
    assert found <= allowed
