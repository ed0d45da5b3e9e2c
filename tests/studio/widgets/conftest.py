"""Widget tests: dark theme, reduced motion."""

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication

from studio.theme.theme import Theme


@pytest.fixture(autouse=True)
def themed(qapp: QApplication) -> Iterator[Theme]:
    theme = Theme.install(qapp, "dark")
    theme.reduced_motion = True
    yield theme
    theme.set_mode("dark")
