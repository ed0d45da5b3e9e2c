"""House rules that no linter knows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "studio").rglob("*.py")])
LIMIT = 450
"""Lines of a file. From 400 on, ask whether it has two subjects."""
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


def test_streams_are_closed_by_who_reads_them() -> None:
    """A stream that is left half read and collected later is closed in no task: then the connection
    stays open, and the program complains. `aclosing` closes it where it is left."""
    unclosed = re.compile(
        r"async for \w+ in [\w.]*(?:client\.\w+|_records|_transfer|_streamed|_of)\("
    )
    found = [
        str(file.relative_to(ROOT))
        for folder in ("studio", "engine")
        for file in (ROOT / folder).rglob("*.py")
        if unclosed.search(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (r"\.exec\(", set()),
        (r"#[0-9a-fA-F]{6}\b", set()),
        (r"\.setStyleSheet\(", {"studio/theme/theme.py"}),
        (r"\.setToolTip\(|QToolTip|QMessageBox", {"studio/theme/plain_tooltips.py"}),
        (r"\.setHtml\(|\.setMarkdown\(", {"studio/shell/help.py"}),  # our own texts
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
