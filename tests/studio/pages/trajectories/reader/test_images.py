"""Images in the reader and the columns: loaded from the engine, shown large, missing ones named."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from studio.pages.trajectories.views import READER
from studio.widgets.transcript.thumbnails import Thumbnail
from tests.studio.conftest import Run
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.pictured import made_images
from tests.studio.pages.trajectories.labels.test_labels import trajectories_page, with_judged_run
from tests.studio.screenshots.pages import wait_for

__all__ = ["with_judged_run"]


def test_images_are_shown_in_their_place_and_large(
    with_judged_run: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    with_judged_run.reading.images = made_images()
    chart = next(iter(made_images()))

    async def job() -> None:
        async with trajectories_page(with_judged_run, qapp, tmp_path) as (_, page):
            page.set_mode(READER)
            transcript = page._reader.transcript

            def names() -> list[str]:
                buttons = transcript.viewport().findChildren(Thumbnail)
                return [one.accessibleName() for one in buttons if one.isVisible()]

            await wait_for(lambda: "Image 1, 640 × 480" in names())
            assert not page._reader._chat.isEnabled()
            asked = with_judged_run.reading.images_asked
            assert asked.count(chart) == 1, "one request for all columns and the reader"
            first = next(
                one
                for one in transcript.viewport().findChildren(Thumbnail)
                if one.accessibleName() == "Image 1, 640 × 480"
            )
            first.click()
            large = page._images.view
            assert large.isVisible()
            await wait_for(lambda: large.accessibleName() == "Image 1, 640 × 480")
            QTest.keyClick(large, Qt.Key.Key_Escape)
            assert not large.isVisible()
            page._images.pictures.opened.emit(4, "0" * 64)
            await wait_for(lambda: "has no image" in large.accessibleName())
            large.close_view()

    run(job())
