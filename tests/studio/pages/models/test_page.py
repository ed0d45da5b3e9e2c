"""Models page: search, facts and fit, downloads, deletion, and use in a project."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.protocol.requests.models import LocalModel, ModelDownload, ModelFit
from studio.services.notifications import Question
from studio.store.hub.details import fact_values, fit_figures, fit_words
from studio.store.hub.downloads import download_row, progress_words
from studio.store.hub.rows import delete_words, local_row, result_row
from tests.studio.conftest import Run, until
from tests.studio.fakes.engine import FakeEngine
from tests.studio.fakes.models import GATED, HUB, facts_of
from tests.studio.screenshots.pages import open_project, studio_on

SMALL, FITS_4BIT, BASE = HUB[0].id, HUB[1].id, HUB[3].id


@asynccontextmanager
async def models_page(
    engine: FakeEngine, app: QApplication, folder: Path, project: str = "inbox-scout"
) -> AsyncIterator[Any]:
    """Open the Models page with a project."""
    engine.add_project("inbox-scout")
    async with studio_on(engine, app, folder) as studio:
        if project:
            await open_project(studio, engine, project)
        studio.window.show_page("models")
        page: Any = studio.pages["models"]
        await until(lambda: page.watch.list is not None and page.here.current())
        yield page


def chips(row: Any) -> list[str]:
    return [words for words, _ in row.chips]


def test_unknown_fit_has_no_chip_and_unusable_models_are_marked() -> None:
    model = HUB[5]
    assert chips(result_row(model, None)) == ["nothing reported"]
    assert result_row(model, None).figure == "–"
    assert fit_words(ModelFit(unknown="No shapes."))[0] == "Memory use is unknown. No shapes."
    assert "fits" in chips(result_row(HUB[0], facts_of(HUB[0])))
    assert "7.6B parameters" in chips(result_row(HUB[1], None))
    base = result_row(HUB[3], facts_of(HUB[3]))
    assert "cannot be trained" in chips(base)
    assert "fits in 4 bit" not in chips(base)
    assert base.faint


def test_figures_end_with_the_deciding_peak_and_its_parts() -> None:
    names = [name.strip() for name, _ in fit_figures(facts_of(HUB[1]).fit)]
    assert names[:3] == ["Available", "Peak", "Peak in 4 bit"]
    assert "activations" in names[3:]
    assert [name for name, _ in fit_figures(facts_of(HUB[0]).fit)][1:3] == ["Peak in 4 bit", "Peak"]
    values = dict(fact_values(facts_of(HUB[5]), None))
    assert (values["Licence"], values["Parameters"], values["Download"]) == ("–", "–", "–")


def test_download_row_shows_speed_time_and_the_right_buttons() -> None:
    one = ModelDownload(
        name="a/b",
        title="b",
        state="downloading",
        done_bytes=1_000_000_000,
        total_bytes=4_000_000_000,
        speed=50e6,
        rest_s=60,
    )
    assert progress_words(one) == "1 GB of 4 GB · 50 MB/s · 1 min left"
    assert [offer.words for offer in download_row(one).offers] == ["Pause", "Cancel"]
    failed = one.model_copy(update={"state": "failed", "problem": GATED, "done_bytes": 0})
    row = download_row(failed)
    assert row.progress is None
    assert "hf auth login" in row.problem
    assert [offer.words for offer in row.offers] == ["Try again", "Cancel"]
    assert download_row(one.model_copy(update={"elsewhere": True})).offers == ()


def test_confirmation_names_what_needs_the_model() -> None:
    model = LocalModel(
        name="a/b", title="b", kind="hub", path="/x", bytes=2 * 10**9, projects=("p",), runs=2
    )
    words = delete_words(model)
    assert "This frees 2 GB of disk space." in words
    assert "Projects that use the model: p." in words
    assert "2 runs need the model to be resumed or exported." in words
    assert chips(local_row(model)) == ["hub cache", "2 runs", "1 project"]


def test_search_shows_facts_and_fits_of_the_rows_in_view(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with models_page(engine, qapp, tmp_path) as page:
            assert engine.models.searched == []  # the network is asked only when the person asks
            QTest.keyClicks(page.search, "qwen instruct")
            QTest.keyClick(page.search, Qt.Key.Key_Return)
            await until(lambda: len(page._facts) > 4)
            assert engine.models.searched == ["qwen instruct"]
            rows = {row.name: chips(row) for row in page.found.rows.rows}
            assert "fits in 4 bit" in rows[FITS_4BIT]
            assert "too large" in rows[HUB[2].id]
            QTest.keyClick(page.search, Qt.Key.Key_Down)
            assert page.found.hasFocus()
            QTest.keyClick(page.found, Qt.Key.Key_Down)
            await until(lambda: page.detail._title.words() == "Qwen2.5-7B-Instruct")
            assert page.detail._fit.words() == "Fits in 4 bit on NVIDIA L40S"
            QTest.keyClick(page.found, Qt.Key.Key_Return)
            assert page.detail._download.hasFocus()
            page.found.setFocus()
            QTest.keyClick(page.found, Qt.Key.Key_Escape)
            assert page.search.hasFocus()
            QTest.keyClick(page.search, Qt.Key.Key_Escape)
            assert page._stack.currentWidget() is page.here

    run(job())


def test_typed_name_is_shown_and_a_missing_one_is_explained(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with models_page(engine, qapp, tmp_path) as page:
            page.search_for(BASE)
            await until(lambda: "no chat template" in page.detail._problem.words())
            assert page.found.current() == BASE
            page.search_for("nobody/nothing")
            await until(lambda: "no model nobody/nothing" in page.detail._problem.words())
            engine.models.offline = True
            page.search_for("qwen")
            await until(lambda: "cannot be reached" in page._note.words())
            engine.models.offline = False
            page._retry.click()
            await until(lambda: page._stack.currentWidget() is page.found)

    run(job())


def test_download_is_paused_resumed_and_used_in_the_project(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with models_page(engine, qapp, tmp_path) as page:
            engine.models.step_bytes = 0
            page.search_for(SMALL)
            await until(lambda: SMALL in page._facts)
            page.detail._download.click()
            await until(lambda: page.watch.downloads)
            row = page.downloads._rows[SMALL]
            assert not page.detail._download.isEnabled()
            row.pressed.emit("pause")
            await until(lambda: page.watch.downloads[0].state == "paused")
            assert page.detail._download.words() == "Download"  # nothing has arrived
            engine.models.step_bytes = 2_000_000_000
            page.detail._download.click()
            await until(lambda: page.detail._use.isVisible())
            assert not page.downloads.isVisible()
            page.detail._use.click()
            await until(lambda: page.session.project.view.config.model.name == SMALL)
            await until(lambda: not page.isVisible())  # Setup is shown

    run(job())


def test_tokenizer_alone_can_be_used_and_is_completed_later(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with models_page(engine, qapp, tmp_path) as page:
            detail, engine.models.step_bytes = page.detail, 2_000_000_000
            page.search_for(SMALL)
            await until(lambda: SMALL in page._facts)
            detail._tokenizer.click()
            await until(detail._use.isVisible)
            assert not detail._tokenizer.isVisible()
            assert detail._download.isVisible()  # the weights are still offered
            assert detail._use.isEnabled()
            row = local_row(page.watch.local(SMALL))
            assert ("tokenizer only", "muted") in row.chips
            assert engine.models.bare == {SMALL}
            detail._download.click()
            await until(lambda: not engine.models.bare)

    run(job())


def test_deletion_is_confirmed_and_refused_while_a_run_uses_the_model(
    engine: FakeEngine, run: Run, qapp: QApplication, tmp_path: Path
) -> None:
    async def job() -> None:
        async with models_page(engine, qapp, tmp_path, project="") as page:
            page.here.choose("smollm2-135m-instruct")
            await until(lambda: page.detail._delete.isVisible())
            assert not page.detail._delete.isEnabled()
            assert not page.detail._use.isEnabled()  # no project is open
            page.here.choose("Qwen/Qwen2.5-0.5B-Instruct")
            await until(lambda: page.detail._delete.isEnabled())
            page.here.setFocus()
            QTest.keyClick(page.here, Qt.Key.Key_Delete)
            await until(lambda: page.window().findChild(Question) is not None)
            question: Any = page.window().findChild(Question)
            next(
                b for b in question.findChildren(type(page._retry)) if b.words() == "Delete"
            ).click()
            await until(lambda: len(page.here.rows.rows) == 1)

    run(job())
