"""Card of the downloads in progress, and of those that can be resumed."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from engine.protocol.requests.models import ModelDownload
from studio.pages.environment_row import EnvironmentRow
from studio.pages.page import scrolled
from studio.store.hub.downloads import download_row
from studio.text import formatting
from studio.widgets.cards.card import Card
from studio.widgets.layouts import vbox

MOST_PX = 200
"""Greatest height of the rows together, so that the list below stays in view."""


class DownloadsCard(Card):
    """Downloads, each with progress and buttons: `pressed(name, action)`. Hidden without any."""

    pressed = Signal(str, str)

    def __init__(self) -> None:
        super().__init__("Downloads", padding=12)
        self._inside = QWidget()
        self._column = vbox(parent=self._inside, spacing=0)
        self._area = scrolled(self._inside)
        self._area.setAccessibleName("Downloads")
        self.body.addWidget(self._area)
        self._rows: dict[str, EnvironmentRow] = {}
        self.hide()

    def show_downloads(self, downloads: Sequence[ModelDownload]) -> None:
        """Show these downloads, in this order."""
        names = [one.name for one in downloads]
        if names != list(self._rows):
            self._rebuild(names)
        for download in downloads:
            self._rows[download.name].show_row(download_row(download))
        waiting = sum(one.state == "queued" for one in downloads)
        assert self.header is not None
        self.header.set_words(f"{formatting.count(waiting)} waiting" if waiting else "")
        self.setVisible(bool(downloads))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Give the rows the height they need, up to `MOST_PX`; more of them scroll."""
        margins = self.body.contentsMargins()
        width = self.width() - margins.left() - margins.right() - 2
        column = self._column
        wraps = column.hasHeightForWidth()
        needed = column.totalHeightForWidth(width) if wraps else column.totalSizeHint().height()
        self._area.setFixedHeight(min(needed, MOST_PX))

    def _rebuild(self, names: Sequence[str]) -> None:
        """Remove the rows of ended downloads, and add rows of new ones at the end."""
        for row in self._rows.values():
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._rows = {name: EnvironmentRow(first=place == 0) for place, name in enumerate(names)}
        for name, row in self._rows.items():
            row.pressed.connect(partial(self.pressed.emit, name))
            self._column.addWidget(row)
