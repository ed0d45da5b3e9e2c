"""Chart card: header with title, last value, change and legend, above one or two panes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import (
    QEnterEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QApplication, QFileDialog, QHBoxLayout, QMenu, QSizePolicy, QWidget

from engine.protocol.records.metrics import Metric
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.charts.export import copy_picture, save_drawing, save_picture, save_values
from studio.widgets.charts.info import InfoMark
from studio.widgets.charts.legend import Entry, Legend
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.pane import EventTag, Limit, Pane
from studio.widgets.charts.series import BandSeries, BarSeries, LineSeries, Series, ValidationSeries
from studio.widgets.charts.view import ChartView
from studio.widgets.controls.buttons import IconButton
from studio.widgets.layouts import add, hbox, vbox
from studio.widgets.painting import paint
from studio.widgets.painting.focus import BY_KEYBOARD
from studio.widgets.text.text import Text

LEAST_HEIGHT_PX = 196


class ChartCard(QWidget):
    """Chart: `card = ChartCard("Reward", link); line = card.add_line("training", "plot-1")`, then
    `line.set_data(steps, values)`. Two panes: `ChartCard("Entropy and KL", link, ("Entropy",
    "KL"))`."""

    step_clicked = Signal(int)
    range_selected = Signal(int, int)
    full_page_requested = Signal()
    hide_requested = Signal()
    dragged = Signal(QPoint)
    """While the header is dragged, with the position on the screen."""
    dropped = Signal()
    save_failed = Signal(str)

    def __init__(
        self,
        title: str,
        link: ChartLink,
        panes: Sequence[str] = ("",),
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._title = title
        self._ring = self._dragging = False
        self._pressed_at: QPoint | None = None
        self._panes = tuple(
            Pane(link, words, x_labels=index == len(panes) - 1) for index, words in enumerate(panes)
        )
        self.view = ChartView(link, self._panes)
        self._last = Text("", "mono")
        self._change = Text("", "mono")
        self._legend, self._wrapped = Legend(), Legend(wraps=True)
        self._expand = IconButton("maximize-2", f"Expand {title}", size=24, key="Enter")
        self._more = IconButton("ellipsis", f"More about {title}", size=24)
        self._has_legend = True
        self._entries: list[Entry] = []
        self._info, self._subtitle = InfoMark(self), Text("", "caption", tone="muted", elide=True)
        self._info.hide()
        self._subtitle.hide()
        self._build()
        self.view.step_clicked.connect(self.step_clicked)
        self.view.range_selected.connect(self.range_selected)
        self.view.setAccessibleName(f"Chart {title}")
        self.view.installEventFilter(self)

    def add_line(
        self,
        name: str,
        token: str,
        *,
        pane: int = 0,
        ghost: bool = True,
        dashed: bool = False,
        filled: bool = False,
        behind: bool = False,
        width_px: float = 2.25,
        in_legend: bool = True,
        form: Callable[[float], str] = formatting.number,
    ) -> LineSeries:
        """Add a line to the axes number `pane`, smoothed over its raw values (`ghost=False`: raw
        only; `behind`: smoothed only, below the other lines). `token` is its colour, `form` formats
        tooltip values."""
        line = LineSeries(
            name,
            token,
            ghost=ghost,
            dashed=dashed,
            filled=filled,
            behind=behind,
            width_px=width_px,
            form=form,
        )
        self._add(line, pane, in_legend)
        return line

    def add_series(self, series: Series, *, pane: int = 0, in_legend: bool = True) -> None:
        """Add a series that was made elsewhere to the axes number `pane`."""
        self._add(series, pane, in_legend)

    def add_band(
        self,
        name: str,
        token: str,
        *,
        pane: int = 0,
        form: Callable[[float], str] = formatting.short,
    ) -> BandSeries:
        """Add a percentile band below all lines; `token`: colour, `form` formats tooltip values."""
        band = BandSeries(name, token, form)
        self._add(band, pane)
        return band

    def add_bars(
        self,
        names: Sequence[str],
        tokens: Sequence[str],
        *,
        pane: int = 0,
        form: Callable[[float], str] = formatting.number,
    ) -> BarSeries:
        """Add stacked bars to a pane (index): one name and colour token per part, bottom up. `form`
        formats values in tooltips."""
        bars = BarSeries(names, tokens, form)
        self._add(bars, pane)
        return bars

    def add_validation(
        self, name: str = "validation, 95 % CI", *, pane: int = 0
    ) -> ValidationSeries:
        """Add a series of validation results, drawn as diamonds with whiskers."""
        diamonds = ValidationSeries(name)
        self._add(diamonds, pane)
        return diamonds

    def set_shown(self, line: LineSeries | ValidationSeries, name: str, shown: bool) -> None:
        """Rename a line, and show or hide its entry in the legend; the line itself stays."""
        others = [one for one in self._entries if one.words not in (line.name, name)]
        line.name = name
        self._entries = others + (self._entries_of(line) if shown else [])
        self._show_legend()

    def set_last(self, value: str, change: str = "", good: bool | None = None) -> None:
        """Set the last value and its change since the first; `good`: better (None: neither)."""
        self._last.set_words(value)
        self._last.setVisible(bool(value))
        self._change.set_words(change)
        self._change.set_tone("muted" if good is None else "good" if good else "bad")
        self._fit_legend()
        self.view.setAccessibleName(f"Chart {self._title}, {value} {change}".strip())

    def set_y(
        self,
        low: float | None,
        high: float | None,
        *,
        pane: int = 0,
        zero: bool = True,
        unit: str = "",
        log: bool = False,
    ) -> None:
        """Set the ends of the vertical axis (None: automatic, including 0 if `zero`). `unit` labels
        it ("%" shows shares as percentages); `log` makes it logarithmic."""
        self._panes[pane].set_y(low, high, zero=zero, unit=unit, log=log)

    def set_about(self, about: Sequence[Metric], words: str = "") -> None:
        """Set the metrics explained by the ⓘ, and an optional line of text under the title. With
        text, the ⓘ is in the header; otherwise in the corner of the axes."""
        if words:
            self._head.insertWidget(self._head.indexOf(self._change) + 1, self._info)
        self._info.set_about(self._title, about, always=bool(words))
        self._info.setVisible(bool(about))
        self._subtitle.set_words(words)
        self._subtitle.setVisible(bool(words))
        self.view.setAccessibleDescription(words or " ".join(metric.words for metric in about))

    def set_limits(self, limits: Sequence[Limit], pane: int = 0) -> None:
        """Set dashed limit lines with labels on the axes number `pane`."""
        self._panes[pane].limits = tuple(limits)
        self.view.schedule()

    def set_events(self, events: Sequence[EventTag]) -> None:
        """Set the events tagged at their steps, at the top of the first axes."""
        self._panes[0].events = tuple(events)
        self.view.schedule()

    def set_empty(self, words: str) -> None:
        """Set the text of the empty chart: when it will have data, or why it cannot."""
        self._panes[0].empty_words = words
        self.view.schedule()

    def has_data(self) -> bool:
        """Whether any point is drawn."""
        return any(pane.has_data() for pane in self._panes)

    def _add(self, series: Series, pane: int, in_legend: bool = True) -> None:
        series.on_change = self._changed
        self._panes[pane].series.append(series)
        if in_legend:
            self._entries += self._entries_of(series)
            self._show_legend()

    def _entries_of(self, series: Series) -> list[Entry]:
        if isinstance(series, BarSeries):
            return [Entry(n, t, "square") for n, t in zip(series.names, series.tokens, strict=True)]
        dashed = isinstance(series, LineSeries) and series.dashed
        return [Entry(series.name, series.token, "dash" if dashed else series.legend_mark)]

    def _changed(self) -> None:
        self.view.schedule()

    def _build(self) -> None:
        head = self._head = QHBoxLayout()
        head.setContentsMargins(12, 0, 12, 0)
        head.setSpacing(8)
        title = Text(self._title, "label", 600, elide=True)
        title.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        title.setMaximumWidth(title.sizeHint().width())
        head.addWidget(title)
        head.addWidget(self._last)
        head.addWidget(self._change)
        head.addStretch(1)
        head.addWidget(self._legend)
        head.addLayout(hbox(self._expand, self._more, spacing=0))
        head.setContentsMargins(12, 0, 6, 0)
        self._header = QWidget()
        self._header.setFixedHeight(36)
        self._header.setLayout(head)
        self._header.installEventFilter(self)
        column = vbox(self._header, parent=self, spacing=0)
        below = hbox(self._subtitle, margins=(12, 0, 12, 4))
        self._legend_box = QWidget()
        vbox(self._wrapped, parent=self._legend_box, margins=(12, 0, 12, 2))
        add(column, below, self._legend_box, (self.view, 1))
        self._expand.clicked.connect(self.full_page_requested)
        self._more.clicked.connect(self._menu)
        self._change.hide()
        self._last.hide()
        self.setMinimumHeight(LEAST_HEIGHT_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def hide_legend(self) -> None:
        """Hide the legend, because several charts share one elsewhere."""
        self._has_legend = False
        self._show_legend()

    def set_full(self, full: bool) -> None:
        """Show the button that restores the grid instead of the one that expands."""
        self._expand.set_icon("minimize-2" if full else "maximize-2")
        self._expand.set_words(f"{'Restore' if full else 'Expand'} {self._title}")
        set_tip(self._expand, "Back to all charts (Esc)" if full else "Expand (Enter)")

    def _show_legend(self) -> None:
        entries = self._entries if self._has_legend else []
        self._legend.set_entries(entries)
        self._wrapped.set_entries(entries)
        self._fit_legend()

    def _fit_legend(self) -> None:
        """Put the legend under the title where it does not fit beside it; the change goes first."""
        taken = round(paint.text_width(self._title, "label", 600)) + 2 * 24 + 40
        taken += self._last.sizeHint().width() + 8 if self._last.words() else 0
        change = self._change.sizeHint().width() + 8 if self._change.words() else 0
        self._change.setVisible(bool(change) and taken + change <= self.width())
        taken += change if not self._change.isHidden() else 0
        fits = taken + self._legend.needed_px() <= self.width()
        self._legend.setVisible(fits)
        self._legend_box.setVisible(not fits and self._has_legend and bool(self._entries))

    def _menu(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        log = menu.addAction("Logarithmic axis")
        log.setCheckable(True)
        log.setChecked(any(pane.is_log for pane in self._panes))
        log.toggled.connect(self._set_log)
        menu.addSeparator()
        menu.addAction("Copy as image").triggered.connect(self._copy)
        for words, ending in (("image", "png"), ("drawing", "svg"), ("values", "csv")):
            action = menu.addAction(f"Save {words} ({ending.upper()})…")
            action.triggered.connect(lambda _=False, ending=ending: self._choose_file(ending))
        menu.addSeparator()
        menu.addAction("Hide this chart").triggered.connect(self.hide_requested)
        menu.popup(self._more.mapToGlobal(QPoint(0, self._more.height())))

    def _set_log(self, log: bool) -> None:
        for pane in self._panes:
            pane.set_log(log)
        self.view.schedule()

    def _choose_file(self, ending: str) -> None:
        dialog = QFileDialog(self.window(), f"Save {self._title}")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(ending)
        dialog.selectFile(f"{self._title.lower().replace(' ', '-').replace('/', '-')}.{ending}")
        dialog.fileSelected.connect(lambda name: self.save_as(Path(name)))
        dialog.open()

    def _copy(self) -> None:
        with self._without_tools():
            copy_picture(self)

    @contextlib.contextmanager
    def _without_tools(self) -> Iterator[None]:
        """Hide the buttons while the chart is rendered to a file."""
        shown = [tool for tool in (self._expand, self._more, self._info) if not tool.isHidden()]
        for tool in shown:
            tool.hide()
        try:
            yield
        finally:
            for tool in shown:
                tool.show()

    def save_as(self, file: Path) -> None:
        """Write the chart as PNG, SVG or CSV, by the file's ending. A failure is emitted as
        `save_failed(text)`."""
        try:
            with self._without_tools():
                match file.suffix.lower():
                    case ".svg":
                        save_drawing(self, self.view, file)
                    case ".csv":
                        save_values(self._panes, file)
                    case _:
                        save_picture(self, file)
        except OSError as error:
            self.save_failed.emit(f"The chart was not saved: {error.strerror or error}.")

    def _place_info(self) -> None:
        if self._head.indexOf(self._info) < 0:
            self._info.move(8, self.height() - self._info.height() - 1)
            self._info.raise_()

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if watched is self._header:
            return self._drag(event)
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.full_page_requested.emit()
                return True
        elif event.type() == QEvent.Type.FocusIn and isinstance(event, QFocusEvent):
            self._ring = event.reason() in BY_KEYBOARD
            self.update()
        elif event.type() == QEvent.Type.FocusOut:
            self._ring = False
            self.update()
        elif event.type() == QEvent.Type.Resize:
            self._place_info()
        return False

    def _drag(self, event: QEvent) -> bool:
        """Follow a drag of the header, which moves the chart in its grid."""
        if not isinstance(event, QMouseEvent) or event.type() == QEvent.Type.MouseButtonDblClick:
            return False
        at = event.globalPosition().toPoint()
        if event.type() == QEvent.Type.MouseButtonPress:
            self._pressed_at = at
        elif event.type() == QEvent.Type.MouseButtonRelease:
            if self._dragging:
                self.dropped.emit()
            self._pressed_at, self._dragging = None, False
        elif self._pressed_at is not None:
            far = (at - self._pressed_at).manhattanLength() >= QApplication.startDragDistance()
            self._dragging = self._dragging or far
            if self._dragging:
                self.dragged.emit(at)
        else:
            return False
        return True

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_legend()

    def enterEvent(self, event: QEnterEvent) -> None:
        self._info.set_near(True)

    def leaveEvent(self, event: QEvent) -> None:
        self._info.set_near(False)

    def paintEvent(self, event: QPaintEvent) -> None:
        with paint.painting(self) as painter:
            paint.box(painter, self.rect(), "surface", "border", 8)
            if self._ring:
                paint.focus_ring(painter, self.rect(), 8)
