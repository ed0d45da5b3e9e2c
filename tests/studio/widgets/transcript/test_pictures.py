"""Images in a transcript: decoded within limits, laid out in the text, shown by buttons."""

import io
import struct
import zlib
from collections.abc import Iterator

import pytest
from PIL import Image
from PySide6.QtCore import QEvent, QObject, QSize, Qt
from pytestqt.qtbot import QtBot

from engine.protocol.problems import StoreError
from engine.protocol.records.conversations import IMAGE
from studio.widgets.transcript.items import ImageRef, Message, ToolCall
from studio.widgets.transcript.layout import Looks, lay_out_row
from studio.widgets.transcript.pictures import THUMBNAIL, Pictures, decode
from studio.widgets.transcript.thumbnails import Thumbnail, on_own_lines, with_marks
from studio.widgets.transcript.view import Transcript

TWO = [ImageRef(1, "a"), ImageRef(2, "b")]


def picture(width: int, height: int, form: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(file, form, **options)
    return file.getvalue()


class PaintCount(QObject):
    """Number of paint events of the widgets that it watches."""

    count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Paint
        return False


@pytest.fixture
def view(qtbot: QtBot) -> Iterator[tuple[Transcript, Pictures]]:
    view, pictures = Transcript(), Pictures()
    qtbot.addWidget(view)
    view.resize(700, 700)
    view.set_pictures(pictures)
    yield view, pictures
    view.close()


def shown(view: Transcript) -> list[Thumbnail]:
    buttons = view.viewport().findChildren(Thumbnail)
    return sorted((one for one in buttons if one.isVisible()), key=lambda b: (b.y(), b.x()))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_image_is_scaled_down_while_it_is_decoded(form: str) -> None:
    found = decode(picture(2000, 1000, form), THUMBNAIL)
    assert (found.width, found.height) == (2000, 1000)
    assert found.image.size() == QSize(960, 480)
    small = decode(picture(40, 30, form), THUMBNAIL)
    assert small.image.size() == QSize(40, 30)


def test_exif_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    found = decode(picture(800, 1600, "JPEG", exif=exif), THUMBNAIL)
    assert (found.width, found.height) == (1600, 800)
    assert found.image.size() == QSize(960, 480)


def test_hostile_files_are_refused() -> None:
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b""))
    )
    for content, words in (
        (bomb, "more than 50 million pixels"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", "neither PNG"),
        (b"", "neither PNG"),
        (picture(60, 40, "BMP"), "neither PNG"),
    ):
        with pytest.raises(StoreError, match=words):
            decode(content, THUMBNAIL)


def test_images_stand_on_lines_of_their_own() -> None:
    assert on_own_lines(f"a {IMAGE} b") == f"a\n{IMAGE}\nb"
    assert on_own_lines(f"{IMAGE} {IMAGE}\n\nb{IMAGE}") == f"{IMAGE}{IMAGE}\nb\n{IMAGE}"
    assert with_marks(f"a {IMAGE}, {IMAGE}, {IMAGE}", TWO) == f"a [image 1], [image 2], {IMAGE}"


def test_text_flows_around_images(qtbot: QtBot) -> None:
    pictures = Pictures()
    for name, size in (("a", (640, 480)), ("b", (300, 900))):
        pictures.set_image(name, decode(picture(*size), THUMBNAIL))
    item = Message("user", f"See {IMAGE}{IMAGE} here", "User", images=TWO)
    row = lay_out_row(item, Looks(600, pictures=pictures), 0)
    first, second = (spot.rect for spot in row.spots)
    assert (first.width(), first.height()) == (320, 240)
    assert (second.width(), second.height()) == (80, 240)
    assert second.left() == first.right() + 8
    block = row.blocks[0]
    words = [block.layout.lineAt(n) for n in range(block.layout.lineCount())]
    assert block.at.y() + words[0].rect().bottom() <= first.top() + 4
    assert block.at.y() + words[2].y() >= first.bottom()
    assert row.frame is not None
    assert row.frame.bottom() > first.bottom()
    narrow = lay_out_row(item, Looks(360, pictures=pictures), 0)
    assert narrow.spots[1].rect.top() > narrow.spots[0].rect.bottom()
    plain = lay_out_row(item, Looks(600), 0)
    assert not plain.spots
    assert plain.blocks[0].layout.text() == "See [image 1][image 2] here"
    result = ToolCall("look", "", f"Here: {IMAGE}", images=TWO[:1])
    (spot,) = lay_out_row(result, Looks(600, pictures=pictures), 0).spots
    assert spot.image.number == 1


def test_thumbnails_are_requested_in_view_and_opened_by_keys(
    qtbot: QtBot, view: tuple[Transcript, Pictures]
) -> None:
    transcript, pictures = view
    asked: list[str] = []
    pictures.wanted.connect(asked.append)
    far = [Message("user", "words " * 900, "User") for _ in range(9)]
    last = Message("user", IMAGE, "User", images=[ImageRef(3, "c")])
    transcript.set_items([Message("user", f"{IMAGE}{IMAGE}", "User", images=TWO), *far, last])
    transcript.show()
    qtbot.waitUntil(lambda: len(shown(transcript)) == 2)
    assert asked == ["a", "b"]
    assert [one.accessibleName() for one in shown(transcript)] == ["Image 1", "Image 2"]
    pictures.set_image("a", decode(picture(640, 480), THUMBNAIL))
    pictures.set_problem("b", "The run has no image 'b'.")
    qtbot.waitUntil(lambda: shown(transcript)[0].height() == 240)
    first, second = shown(transcript)
    assert first.accessibleName() == "Image 1, 640 × 480"
    assert second.accessibleName() == "Image 2: The run has no image 'b'."
    assert not second.isEnabled()
    opened: list[tuple[int, str]] = []
    pictures.opened.connect(lambda number, image: opened.append((number, image)))
    qtbot.mouseClick(first, Qt.MouseButton.LeftButton)
    qtbot.keyClick(first, Qt.Key.Key_Return)
    qtbot.keyClick(first, Qt.Key.Key_Space)
    assert opened == [(1, "a")] * 3
    transcript.focus_row(0)
    qtbot.wait(100)
    paints = PaintCount()
    first.installEventFilter(paints)
    qtbot.wait(200)
    assert paints.count == 0, "painting ends"
    transcript.focus_row(10)
    qtbot.waitUntil(lambda: asked == ["a", "b", "c"])
    qtbot.waitUntil(lambda: [b.accessibleName() for b in shown(transcript)] == ["Image 3"])


def test_many_small_images_stay_and_large_ones_give_way(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []
    pictures = Pictures()
    pictures.wanted.connect(wanted.append)
    icon, photo = decode(picture(16, 16), THUMBNAIL), decode(picture(960, 480), THUMBNAIL)
    for number in range(200):
        pictures.set_image(f"icon {number}", icon)
    assert all(pictures.picture(f"icon {n}").thumbnail is not None for n in range(200))
    assert not wanted
    monkeypatch.setattr("studio.widgets.transcript.pictures.MOST_BYTES", 3 * 960 * 480 * 4)
    for number in range(4):
        pictures.set_image(f"photo {number}", photo)
    assert pictures.picture("photo 3").thumbnail is not None
    assert pictures.picture("photo 0").thumbnail is None
    assert wanted == ["photo 0"]
