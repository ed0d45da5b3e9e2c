"""Thumbnails in a transcript: where images are in the text of a message, and the buttons that show
them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QKeyEvent, QPainter, QPaintEvent, QPixmap, QTextLayout, QTransform
from PySide6.QtWidgets import QAbstractButton, QWidget

from engine.protocol.records.conversations import IMAGE
from studio.theme.plain_tooltips import set_tip
from studio.widgets.painting import paint
from studio.widgets.transcript.items import ImageRef
from studio.widgets.transcript.pictures import Picture, Pictures

HIGHEST, WIDEST = 240.0, 480.0
LOADING, PROBLEM = (160.0, 120.0), (260.0, 72.0)
"""Size in pixels of an image that is not loaded, and of one that cannot be shown."""
GAP, RADIUS = 8.0, 6.0
RUN = re.compile(rf"\s*({IMAGE}[{IMAGE}\s]*)")


@dataclass(frozen=True)
class Spot:
    """Place of a thumbnail in a row."""

    image: ImageRef
    rect: QRectF


def with_images(text: str, images: Sequence[ImageRef], pictures: Pictures | None) -> str:
    """Text with room for its images, or with marks in their place without `pictures`."""
    if not images:
        return text
    return on_own_lines(text) if pictures else with_marks(text, images)


def on_own_lines(text: str) -> str:
    """Text with each run of images on a line of its own."""
    lines = RUN.sub(lambda found: f"\n{IMAGE * found[1].count(IMAGE)}\n", text)
    return lines.strip("\n")


def with_marks(text: str, images: Sequence[ImageRef]) -> str:
    """Text with "[image 1]" in place of each image."""
    marks = iter(images)
    return re.sub(IMAGE, lambda sign: f"[image {one.number}]" if (one := next(marks, None)) else
                  sign[0], text)  # fmt: skip


def spots_of(
    layout: QTextLayout, images: Sequence[ImageRef], pictures: Pictures, width: float
) -> tuple[list[Spot], float]:
    """Move the lines of a layout so that the thumbnails of `images` fit where its text has the
    character IMAGE; returns their places within the layout, and its additional height."""
    text, found, shift = layout.text(), list[Spot](), 0.0
    for number in range(layout.lineCount()):
        line = layout.lineAt(number)
        at = line.position()
        at.setY(at.y() + shift)
        line.setPosition(at)
        start = line.textStart()
        count = text[start : start + line.textLength()].count(IMAGE)
        if not count:
            continue
        first = text[:start].count(IMAGE)
        flow = _flow(images[first : first + count], pictures, width)
        top = at.y()
        found += [Spot(spot.image, spot.rect.translated(0, top)) for spot in flow]
        bottom = max((spot.rect.bottom() for spot in flow), default=0.0)
        shift += max(0.0, bottom + GAP - line.height())
    return found, shift


def _flow(images: Iterable[ImageRef], pictures: Pictures, width: float) -> list[Spot]:
    """Places of thumbnails beside and below one another."""
    found, x, y, lowest = list[Spot](), 0.0, 0.0, 0.0
    for image in images:
        size = _size(pictures.picture(image.id), width)
        if x and x + size[0] > width:
            x, y = 0.0, lowest + GAP
        found.append(Spot(image, QRectF(x, y, *size)))
        x, lowest = x + size[0] + GAP, max(lowest, y + size[1])
    return found


def _size(picture: Picture, width: float) -> tuple[float, float]:
    if picture.thumbnail is None:
        wanted = PROBLEM if picture.problem else LOADING
        return min(wanted[0], width), wanted[1]
    scale = min(1.0, HIGHEST / picture.height, min(WIDEST, width) / picture.width)
    return max(24.0, picture.width * scale), max(24.0, picture.height * scale)


class Thumbnail(QAbstractButton):
    """Thumbnail of an image; a click, Return or Space opens it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._picture = Picture()
        self._scaled: QPixmap | None = None
        self._words = ""
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def show_picture(self, number: int, picture: Picture) -> None:
        """Show an image, numbered in its trajectory. Without a change, nothing is painted: the
        transcript calls this whenever it is painted itself."""
        words = f"Image {number}"
        if (words, picture) == (self._words, self._picture):
            return
        self._picture, self._words, self._scaled = picture, words, None
        name = self._words
        if picture.thumbnail is not None:
            name = f"{self._words}, {picture.width:,} × {picture.height:,}"
        elif picture.problem:
            name = f"{self._words}: {picture.problem}"
        self.setAccessibleName(name)
        set_tip(self, name)
        self.setEnabled(picture.thumbnail is not None)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(round(LOADING[0]), round(LOADING[1]))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        picture, area = self._picture, QRectF(self.rect())
        with paint.painting(self) as painter:
            if picture.thumbnail is not None:
                self._paint_image(painter, area)
            else:
                paint.box(painter, area, "surface", "border-strong", RADIUS)
                icon = "circle-alert" if picture.problem else "image"
                paint.icon(painter, area.topLeft() + QPoint(11, 11), icon, "muted", 14)
                line = QRectF(32, 8, area.width() - 42, 20)
                paint.text(painter, line, self._words, "text", "label", 500)
                about = area.adjusted(11, 32, -11, -6)
                words = picture.problem or "Loading…"
                paint.paragraph(painter, about, words, "muted", "caption", 2)
            if self.hasFocus():
                paint.focus_ring(painter, area, RADIUS)

    def _paint_image(self, painter: QPainter, area: QRectF) -> None:
        wanted = self.size() * self.devicePixelRatioF()
        if self._scaled is None or self._scaled.size() != wanted:
            assert self._picture.thumbnail is not None
            self._scaled = self._picture.thumbnail.scaled(
                wanted, mode=Qt.TransformationMode.SmoothTransformation
            )
        paint.box(painter, area, "chip", None, RADIUS)  # behind transparent pixels
        brush = QBrush(self._scaled)  # a clip would leave rough corners
        scale = 1 / self.devicePixelRatioF()
        brush.setTransform(QTransform.fromScale(scale, scale))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(brush)
        painter.drawRoundedRect(area, RADIUS, RADIUS)
        edge = "accent" if self.underMouse() else "border-strong"
        paint.box(painter, area, None, edge, RADIUS)


class Thumbnails(QObject):
    """Buttons over a transcript, one for each image in view. `place` arranges them."""

    opened = Signal(int, str)

    def __init__(self, viewport: QWidget) -> None:
        super().__init__(viewport)
        self._viewport = viewport
        self._buttons: dict[tuple[int, int], Thumbnail] = {}

    def place(
        self, spots: Mapping[tuple[int, int], Spot], pictures: Pictures,
        corner: Callable[[int], QPoint],
    ) -> None:  # fmt: skip
        """Show a button for each of `spots`, by row and number within the row; `corner` gives the
        top left corner of a row."""
        unused = dict(self._buttons)
        for key, spot in spots.items():
            button = unused.pop(key, None)
            if button is None:
                button = self._buttons[key] = Thumbnail(self._viewport)
                button.clicked.connect(lambda _=False, b=button: self._open(b))
            area = spot.rect.toRect().translated(corner(key[0]))
            if button.geometry() != area:
                button.setGeometry(area)
            button.setProperty("image", (spot.image.number, spot.image.id))
            button.show_picture(spot.image.number, pictures.picture(spot.image.id))
            if button.isHidden():
                button.show()
        for key, button in unused.items():
            del self._buttons[key]
            button.hide()
            button.deleteLater()

    def _open(self, button: Thumbnail) -> None:
        number, image = button.property("image")
        self.opened.emit(number, image)
