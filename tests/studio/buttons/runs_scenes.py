"""Button scenes of the Runs page over a real engine: table, notes, comparison, empty project."""

import shutil
from typing import Any

from engine.protocol.records.run_notes import RunNotes
from engine.trust.projects import trust_project
from tests.studio.buttons.stage import Row, Scene, Stage


async def table(stage: Stage) -> Any:
    """Table of the lab's runs, two of them chosen."""
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    page = stage.page("runs")
    if page.compare_view.isVisible():
        page._close_comparison()
    if page.model.query.archived:
        page._ask(archived=False)
    for run_id in (stage.backend.trained, stage.backend.imported):
        await stage.session.client.note_run(run_id, RunNotes(tags=("kept",)))
    page.model.refresh()
    await stage.until(lambda: page.model.is_loaded and page.model.total)
    page.chosen.choose(())
    for run_id in (stage.backend.trained, stage.backend.imported):
        await stage.until(lambda run_id=run_id: row_of(page, run_id) >= 0)
        page._choose(row_of(page, run_id))
    return page


def row_of(page: Any, run_id: str) -> int:
    rows = range(page.model.total)
    return next((row for row in rows if (r := page.table.run_at(row)) and r.id == run_id), -1)


async def listed(stage: Stage) -> None:
    await table(stage)


async def noted(stage: Stage) -> None:
    page = await table(stage)
    if not page._sheet.is_open():
        page._sheet.show_runs(page._targets())
        page._sheet._tags.set_value("kept")


async def tagged(stage: Stage) -> None:
    page = await table(stage)
    await stage.until(lambda: page._page.tags)


async def hidden(stage: Stage) -> None:
    """Table without an archived run."""
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    page = stage.page("runs")
    notes = RunNotes(archived=True)
    await stage.session.client.note_run(stage.backend.imported, notes)
    page.chosen.choose(())
    page.model.refresh()
    await stage.until(lambda: page._page.archived and page._archived.isEnabled())


async def comparison(stage: Stage) -> None:
    page = await table(stage)
    page._open_comparison()
    await stage.until(lambda: page.compare_view._charts)


async def deleting(stage: Stage) -> None:
    page = await table(stage)
    if not stage.dialog("Delete 2 runs"):
        page._remove()
        await stage.until(lambda: stage.dialog("Delete 2 runs"))


async def searched(stage: Stage) -> None:
    page = await table(stage)
    page._search.setText("imported")
    await stage.until(lambda: page.model.query.search == "imported")


async def zoomed(stage: Stage) -> None:
    page = await table(stage)
    page._open_comparison()
    view = page.compare_view
    await stage.until(lambda: view.link.reach)
    view.link.set_zoom((1.0, 2.0))


async def no_run(stage: Stage) -> None:
    blank = stage.backend.fresh.with_name("blank")
    if not blank.exists():
        without = shutil.ignore_patterns("runs")
        shutil.copytree(stage.backend.fresh, blank, ignore=without)
        trust_project(blank)
    await stage.open_run(blank)
    page = stage.page("runs")
    await stage.until(lambda: page._empty.isVisible())


RUNS = [
    Scene(
        "table",
        listed,
        [
            Row("RunsPage._note", "shown NotesSheet"),
            Row("RunsPage._pin", "PUT /runs/.*/notes", "Pin"),
            Row("RunsPage._delete", "shown Question Delete 2 runs"),
            Row("RunsPage._compare", "shown CompareView"),
        ],
    ),
    Scene(
        "notes",
        noted,
        [
            Row("NotesSheet: Close", "hidden NotesSheet"),
            Row("NotesSheet: Cancel", "hidden NotesSheet"),
            Row("NotesSheet: Save", "PUT /runs/.*/notes"),
        ],
    ),
    Scene("searched", searched, [Row("SearchInput._clear of RunsPage", "POST /run_table")]),
    Scene("tagged", tagged, [Row("RunsPage._tags", "shown QMenu kept")]),
    Scene("archive", listed, [Row("RunsPage._archive", "PUT /runs/.*/notes", "Archive")]),
    Scene("archived", hidden, [Row("RunsPage._archived", "POST /run_table", "Archived")]),
    Scene(
        "comparison",
        comparison,
        [
            Row("RunLegend._keys[]", "unchecked RunKey"),
            Row("RunLegend._keys[]", "checked RunKey"),
            Row("ChartCard._info of CompareView", "shown Tip "),
            Row("ChartCard._expand of CompareView", "hidden ChartCard"),
            Row("ChartCard._more of CompareView", "shown QMenu Logarithmic axis"),
            Row("CompareView._back", "hidden CompareView"),
        ],
    ),
    Scene("zoomed", zoomed, [Row("CompareView._zoom", "hidden ZoomButton")]),
    Scene("deleting", deleting, [Row("Question: Cancel", "hidden Question Delete 2 runs")]),
    Scene("no run", no_run, [Row("EmptyPage: Train of RunsPage", "POST /runs", rest=True)]),
]
