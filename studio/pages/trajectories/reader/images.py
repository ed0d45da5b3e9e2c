"""Loading of the images in transcripts: thumbnails when they come into view, and one large."""

import asyncio

from PySide6.QtCore import QObject, QSize
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from studio.pages.trajectories.groups.columns import ColumnsView
from studio.pages.trajectories.reader.reader import Reader
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.widgets.transcript.image_view import ImageView
from studio.widgets.transcript.pictures import THUMBNAIL, Decoded, Pictures, decode

LARGE = QSize(3000, 3000)
"""Largest size in pixels at which one image is decoded."""
AT_ONCE = 4


class ImageController(QObject):
    """Images of the run whose group is shown; the large view covers `host`."""

    def __init__(
        self,
        session: Session,
        tasks: TaskScope,
        columns: ColumnsView,
        reader: Reader,
        host: QWidget,
    ) -> None:
        super().__init__(host)
        self._session, self._tasks = session, tasks
        self._run_id = ""
        self._places = asyncio.Semaphore(AT_ONCE)
        self.pictures = Pictures(self)
        self.view = ImageView(host)
        self.pictures.wanted.connect(self._load)
        self.pictures.opened.connect(self._open)
        columns.set_pictures(self.pictures)
        reader.transcript.set_pictures(self.pictures)

    def show_run(self, run_id: str) -> None:
        """Forget the images of another run."""
        if run_id != self._run_id:
            self._run_id = run_id
            self.pictures.clear()

    def _load(self, image: str) -> None:
        self._tasks.run(
            f"image {image}",
            self._decoded(image, THUMBNAIL),
            lambda decoded: self.pictures.set_image(image, decoded),
            lambda problem: self.pictures.set_problem(image, _words(problem)),
        )

    def _open(self, number: int, image: str) -> None:
        self.view.open(number)
        self._tasks.run(
            "large image",
            self._decoded(image, LARGE),
            self.view.show_image,
            lambda problem: self.view.show_problem(_words(problem)),
        )

    async def _decoded(self, image: str, most: QSize) -> Decoded:
        """Image of the run, decoded in a thread. Raises AtelierError if it is missing or cannot be
        decoded."""
        async with self._places:
            content = await self._session.client.image(self._run_id, image)
            return await asyncio.to_thread(decode, content, most)


def _words(problem: Problem) -> str:
    return problem.message
