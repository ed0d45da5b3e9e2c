"""Widget tests run in the dark theme, without motion."""

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication

from studio.theme.theme import Theme


@pytest.fixture(autouse=True)
def themed(qapp: QApplication) -> Iterator[Theme]:
    found = Theme.install(qapp, "dark")
    found.reduced_motion = True
    yield found
    found.set_mode("dark")
