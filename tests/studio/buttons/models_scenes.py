"""Button scenes of the Models page."""

from typing import Any

from engine.protocol.requests.models import DownloadState, ModelDownload
from tests.studio.buttons.stage import Row, Scene, Stage
from tests.studio.fakes.models import HUB

HUB_NEEDED = "a hub with models of many GB, and a download that takes minutes"
OWN = "Qwen/Qwen2.5-0.5B-Instruct"
NAME = HUB[0].id


async def here(stage: Stage) -> Any:
    """List of this machine, with a model that may be deleted."""
    stage.backend.models.offline, stage.backend.models.downloads = False, []
    page = stage.page("models")
    page.search.setText("")
    page._switch_to(0)
    page.watch.start()
    await stage.until(lambda: page.watch.list is not None and not page.watch.downloads)
    page.here.choose(OWN)
    await stage.until(lambda: page.detail._delete.isVisible() and page._shown == OWN)
    return page


async def local(stage: Stage) -> None:
    await here(stage)


async def deleting(stage: Stage) -> None:
    page = await here(stage)
    if not stage.dialog("Delete "):
        page._delete()
        await stage.until(lambda: stage.dialog("Delete "))


async def found(stage: Stage) -> None:
    page = await here(stage)
    page.search_for("qwen")
    await stage.until(lambda: page._shown == NAME and page.detail._download.isEnabled())


async def download(stage: Stage, state: DownloadState) -> None:
    page = await here(stage)
    stage.backend.models.step_bytes = 0
    stage.backend.models.downloads = [
        ModelDownload(
            name=NAME, title="Qwen2.5-1.5B-Instruct", state=state, done_bytes=1, total_bytes=9
        )
    ]
    page.watch.start()
    await stage.until(lambda: page.watch.downloads and page.watch.downloads[0].state == state)


async def downloading(stage: Stage) -> None:
    await download(stage, "downloading")


async def interrupted(stage: Stage) -> None:
    await download(stage, "interrupted")


async def missing(stage: Stage) -> None:
    page = await here(stage)
    page.search_for("nobody/nothing")
    await stage.until(lambda: page.detail._again.isVisible())


async def offline(stage: Stage) -> None:
    page = await here(stage)
    stage.backend.models.offline = True
    page.search_for("qwen")
    await stage.until(lambda: page._retry.isVisible())


MODELS = [
    Scene(
        "models here",
        local,
        [
            Row("ModelsPage._folder", "shown QFileDialog Choose a model folder"),
            Row("ModelDetail._page", "url https://huggingface.co/Qwen"),
            Row("ModelDetail._delete", "shown Question Delete Qwen"),
            Row("ModelDetail._use", "PUT /project .*model.name.*Qwen"),
        ],
        HUB_NEEDED,
    ),
    Scene(
        "search results",
        found,
        [
            Row("ModelDetail._download", "POST /models/downloads .*start"),
            Row("ModelDetail._tokenizer", "POST /models/downloads .*start.*weights.*false"),
            Row("ModelSearch._clear", "hidden Button Download"),
        ],
        HUB_NEEDED,
    ),
    Scene(
        "downloading",
        downloading,
        [
            Row("EnvironmentRow: Pause", "POST /models/downloads .*pause"),
            Row("EnvironmentRow: Cancel", "POST /models/downloads .*cancel"),
        ],
        HUB_NEEDED,
    ),
    Scene(
        "interrupted",
        interrupted,
        [Row("EnvironmentRow: Resume", "POST /models/downloads .*start")],
        HUB_NEEDED,
    ),
    Scene("missing", missing, [Row("ModelDetail._again", "GET /models/facts")], HUB_NEEDED),
    Scene("offline", offline, [Row("ModelsPage._retry", "GET /models/search")], HUB_NEEDED),
    Scene(
        "deleting",
        deleting,
        [
            Row("Question: Cancel", "hidden Question Delete Qwen"),
            Row("Question: Delete", "POST /models/delete .*Qwen"),
        ],
        HUB_NEEDED,
    ),
]
