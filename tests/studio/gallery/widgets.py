"""Render the widget gallery to PNG in both themes.

`python -m tests.studio.gallery.widgets OUT [page] [width] [height]`, with
QT_QPA_PLATFORM=offscreen. A script, not a test.
"""

import sys
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.theme.theme import Theme


def main() -> None:
    """Render the named page (run, parts, forms, transcript) in both themes."""
    from tests.studio.gallery.pages import PAGES

    out = Path(sys.argv[1])
    names = [sys.argv[2]] if len(sys.argv) > 2 and sys.argv[2] != "all" else list(PAGES)
    size = (int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (1440, 900)
    app = QApplication.instance() or QApplication(sys.argv)
    assert isinstance(app, QApplication)
    themes = Theme.install(app, "dark")
    themes.reduced_motion = True
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        window = PAGES[name]()
        window.resize(*size)
        window.show()
        for mode in ("dark", "light"):
            themes.set_mode(mode)
            QTest.qWait(150)
            window.grab().save(str(out / f"{name}-{mode}-{size[0]}.png"))
        window.close()
    QTimer.singleShot(0, app.quit)


if __name__ == "__main__":
    main()
