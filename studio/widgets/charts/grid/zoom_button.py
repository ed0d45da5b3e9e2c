"""Button that is there while the charts of a page are zoomed, and shows all data again."""

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QWidget

from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.ticks import x_label
from studio.widgets.controls.buttons import Button


class ZoomButton(Button):
    """Button with the zoomed range: "Steps 100 to 400 ×"."""

    def __init__(self, link: ChartLink, parent: QWidget | None = None) -> None:
        super().__init__("Reset zoom", "outlined", icon="x", height=24, parent=parent)
        self._link = link
        self.clicked.connect(lambda: link.set_zoom(None))
        link.range_changed.connect(self._show)
        self._show(link.zoom)

    @Slot(object)
    def _show(self, zoom: tuple[float, float] | None) -> None:
        self.setVisible(zoom is not None)
        if zoom is not None:
            unit = {"step": "Steps ", "tokens": "Tokens "}.get(self._link.kind, "")
            ends = [x_label(round(end), self._link.kind) for end in zoom]
            self.set_words(f"{unit}{ends[0]} to {ends[1]}")
            self.setAccessibleDescription("Show all data again")
