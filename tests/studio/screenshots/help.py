"""Screenshots of the help window in both themes.

`python -m tests.studio.screenshots.help FOLDER`
"""

import os
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QT_API", "pyside6")

from PySide6.QtWidgets import QApplication

from studio.shell.help import HelpDialog
from studio.theme.theme import Theme
from studio.widgets.controls.inputs import SearchInput
from tests.studio.screenshots.pages import run_command, settle

PAGES = (
    "index.md",
    "how-to/bring-your-own-agent.md",
    "how-to/export.md",
    "reference/metrics.md",
    "explanation/coming-from.md",
)


async def shoot(app: QApplication, folder: Path) -> None:
    """Save a picture of each page and of a search at 1280x800."""
    for scheme in ("dark", "light"):
        Theme.install(app, mode=scheme)
        dialog = HelpDialog(None)  # type: ignore[arg-type]
        dialog.resize(1280, 800)
        dialog.show()
        for path in PAGES:
            dialog.show_path(path)
            await settle()
            dialog.grab().save(str(folder / f"help-{Path(path).stem}-{scheme}.png"))
        dialog.findChild(SearchInput).setText("importance sampling")
        await settle()
        dialog.grab().save(str(folder / f"help-search-{scheme}.png"))
        dialog.close()


if __name__ == "__main__":
    run_command(shoot)
