"""Images of a transcript: requested by id when they come into view, decoded outside of the GUI
thread, and kept as thumbnails."""

from collections import OrderedDict
from dataclasses import dataclass

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QSize, Qt, Signal
from PySide6.QtGui import QImage, QImageIOHandler, QImageReader, QPixmap

from engine.protocol.problems import StoreError

MOST_PIXELS = 50_000_000
"""Largest number of pixels of an image that is shown."""
THUMBNAIL = QSize(960, 480)
"""Largest thumbnail in pixels: twice its size on screen, for screens with a high resolution."""
MOST_BYTES = 192 * 2**20
"""Bytes of all thumbnails that are kept: more than fill a large screen, so that those in view
stay."""
FORMATS = ("png", "jpeg", "webp", "gif")


@dataclass(frozen=True)
class Decoded:
    """Image scaled down, and the size of the whole in pixels."""

    image: QImage
    width: int
    height: int


@dataclass(frozen=True)
class Picture:
    """Image as it is known: loading without either, ready with a thumbnail, or missing with the
    reason."""

    thumbnail: QPixmap | None = None
    width: int = 0
    height: int = 0
    problem: str = ""


class Pictures(QObject):
    """Thumbnails by image id. Emits `wanted(id)` for an image that is not loaded; `set_image` or
    `set_problem` answers, and `changed` follows. Emits `opened(number, id)` for one to be shown
    large."""

    wanted = Signal(str)
    changed = Signal()
    opened = Signal(int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._known: OrderedDict[str, Picture] = OrderedDict()

    def picture(self, image: str) -> Picture:
        """Image as it is known; an unknown one is requested."""
        found = self._known.get(image)
        if found is None:
            found = self._known[image] = Picture()
            self.wanted.emit(image)
        self._known.move_to_end(image)
        return found

    def set_image(self, image: str, decoded: Decoded) -> None:
        thumbnail = QPixmap.fromImage(decoded.image)
        self._set(image, Picture(thumbnail, decoded.width, decoded.height))

    def set_problem(self, image: str, words: str) -> None:
        """Show in place of an image why it cannot be shown."""
        self._set(image, Picture(problem=words))

    def clear(self) -> None:
        """Forget all images, as on a change of run."""
        self._known.clear()

    def _set(self, image: str, picture: Picture) -> None:
        self._known[image] = picture
        taken = sum(map(_bytes, self._known.values()))
        for name, known in list(self._known.items()):
            if taken > MOST_BYTES and known.thumbnail is not None and name != image:
                taken -= _bytes(known)
                del self._known[name]
        self.changed.emit()


def _bytes(picture: Picture) -> int:
    shown = picture.thumbnail
    return 4 * shown.width() * shown.height() if shown is not None else 0


def decode(content: bytes, most: QSize) -> Decoded:
    """Decode an image file, scaled down to at most `most` pixels and turned by its EXIF
    orientation. For threads. Raises StoreError with the reason."""
    buffer = QBuffer()
    buffer.setData(QByteArray(content))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer)
    reader.setAutoTransform(True)
    if bytes(reader.format().data()).decode() not in FORMATS:
        raise _unreadable("It is neither PNG nor JPEG, WebP or GIF")
    size = reader.size()
    if size.width() * size.height() > MOST_PIXELS:
        raise _unreadable(f"It has more than {MOST_PIXELS // 10**6} million pixels")
    quarter = QImageIOHandler.Transformation.TransformationRotate90
    turned = bool(reader.transformation().value & quarter.value)
    room = most.transposed() if turned else most
    if size.width() > room.width() or size.height() > room.height():
        reader.setScaledSize(size.scaled(room, Qt.AspectRatioMode.KeepAspectRatio))
    image = reader.read()
    if image.isNull():
        raise _unreadable(reader.errorString())
    whole = size.transposed() if turned else size
    return Decoded(image, whole.width(), whole.height())


def _unreadable(why: str) -> StoreError:
    return StoreError.of("image.unreadable", f"The image cannot be shown. {why}.")
