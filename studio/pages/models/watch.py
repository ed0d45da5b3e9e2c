"""Reader of the models on this machine and of the downloads, while the page is in view."""

import asyncio

from PySide6.QtCore import QObject, Signal

from engine.protocol.requests.models import LocalModel, ModelDownload, ModelList
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.hub.downloads import is_active

POLL_S = 0.5
JOB = "watch"


class ModelWatch(QObject):
    """Models and downloads: `start()` reads them, and polls as long as a download proceeds. Emits
    `listed` and `progressed` after each reading, `failed(problem)` if the engine refuses."""

    listed = Signal()
    progressed = Signal()
    failed = Signal(object)

    def __init__(self, session: Session, tasks: TaskScope, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self.list: ModelList | None = None
        """Last list, with the current downloads; None until it is read."""

    @property
    def downloads(self) -> list[ModelDownload]:
        return self.list.downloads if self.list else []

    def start(self) -> None:
        if self._session.connected:
            self._tasks.run(JOB, self._follow(), failed=self.failed.emit)

    def stop(self) -> None:
        self._tasks.cancel(JOB)

    def local(self, name: str) -> LocalModel | None:
        """Return the model of this machine by its name, or None."""
        models = self.list.models if self.list else []
        return next((one for one in models if one.name == name), None)

    def download(self, name: str) -> ModelDownload | None:
        """Return the download of a model that is not complete, or None."""
        return next((one for one in self.downloads if one.name == name), None)

    def take(self, downloads: list[ModelDownload]) -> None:
        """Replace the list of downloads, as returned by the engine, and emit `progressed`."""
        if self.list is not None:
            self.list = self.list.model_copy(update={"downloads": downloads})
        self.progressed.emit()

    async def _follow(self) -> None:
        while True:
            self.list = await self._session.client.local_models()
            self.listed.emit()
            self.progressed.emit()
            while any(map(is_active, self.downloads)):
                await asyncio.sleep(POLL_S)
                before = [one.name for one in self.downloads]
                self.take(await self._session.client.model_downloads())
                if before != [one.name for one in self.downloads]:
                    break  # a model has arrived
            else:
                return
