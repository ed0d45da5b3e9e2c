"""Button scenes of the Runs page over a real engine: table, notes, comparison, empty project."""

import shutil
from typing import Any

from engine.protocol.records.run_notes import RunNotes
from engine.trust.projects import trust_project
from tests.studio.buttons.stage import Row, Scene, Stage
from tests.studio.fakes.sweeps import make_sweep


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
    if page.sweeps.isVisible():
        page._show_table()
    await stage.until(lambda: page._empty.isVisible())


async def no_sweep(stage: Stage) -> None:
    """Sweeps of a project that has none."""
    page = await table(stage)
    page._show_sweeps()
    await stage.until(lambda: page.sweeps._empty.isVisible())


async def sweep_form(stage: Stage) -> None:
    page = await table(stage)
    page._show_sweeps()
    sheet = page.sweeps._sheet
    if not sheet.is_open():
        page.sweeps.open_form()
    sheet._space.set_text("train.lr = [0.001, 0.002]")
    sheet._steps.set_value(3)
    sheet._changed()
    await stage.until(sheet._go.isEnabled)


async def sweeping(stage: Stage) -> None:
    """Sweep of the lab that runs."""
    page = await table(stage)
    page._show_sweeps()
    await stage.until(lambda: page.sweeps._view)
    if page.sweeps._view.state == "paused":
        page.sweeps._act("resume")
    await stage.until(lambda: page.sweeps._view.state in ("waiting", "running"), 60)


async def swept(stage: Stage) -> None:
    """Stopped sweep."""
    page = await table(stage)
    page._show_sweeps()
    await stage.until(lambda: page.sweeps._view)
    if page.sweeps._view.state in ("waiting", "running"):
        page.sweeps._act("stop")
    await stage.until(lambda: page.sweeps._view.state in ("stopped", "paused"), 60)


async def two_results(stage: Stage) -> None:
    """Sweep with two results, whose runs are two of the lab."""
    page = await table(stage)
    page._show_sweeps()
    page.sweeps.leave()
    await stage.until(lambda: not page.tasks.busy("sweeps"))
    view = make_sweep(str(stage.backend.lab), 2)
    ids = (stage.backend.trained, stage.backend.imported)
    trials = [
        trial.model_copy(update={"runs": (trial.runs[0].model_copy(update={"run_id": run_id}),)})
        for trial, run_id in zip(view.trials, ids, strict=True)
    ]
    page.sweeps._view = view.model_copy(update={"trials": trials})
    page.sweeps._show()


SWEEP_SETTINGS = "EmptyPage: Sweep settings… of RunsPage"
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
    Scene("no sweep", no_sweep, [Row("EmptyPage: New sweep of SweepsView", "shown SweepSheet")]),
    Scene(
        "sweep form",
        sweep_form,
        [
            Row("SweepSheet: Close", "hidden SweepSheet"),
            Row("SweepSheet: Cancel", "hidden SweepSheet"),
            Row("ToggleField._toggle of SweepSheet", "unchecked Toggle Pruning"),
            Row("SweepSheet._go", "POST /sweeps "),
        ],
    ),
    Scene(
        "sweeping",
        sweeping,
        [
            Row("SweepsView._name", "shown QMenu"),
            Row("SweepsView._new", "shown SweepSheet"),
            Row("SweepsView._pause", "POST /sweeps/.*pause", "Pause"),
            Row("SweepsView._stop", "POST /sweeps/.*stop"),
        ],
    ),
    Scene("swept", swept, [Row("SweepsView._pause", "POST /sweeps/.*resume", "Resume", rest=True)]),
    Scene("deleting", deleting, [Row("Question: Cancel", "hidden Question Delete 2 runs")]),
    Scene("two results", two_results, [Row("SweepsView._compare", "shown CompareView")]),
    Scene(
        "no run yet", no_run, [Row("EmptyPage: Sweep settings… of RunsPage", "shown SweepsView")]
    ),
    Scene("no run", no_run, [Row("EmptyPage: Train of RunsPage", "POST /runs", rest=True)]),
]
