"""Button scenes of Setup over a real engine: form, file, scenarios, demonstrations, teacher."""

from typing import Any

from PySide6.QtTest import QTest

from studio.main_window import LEAST
from tests.studio.buttons.stage import Row, Scene, Stage

FORM, FILE, SCENARIOS, DEMONSTRATIONS = range(4)


async def setup(stage: Stage, tab: int) -> Any:
    """Open the lab's Setup page with a tab."""
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    page = stage.page("setup")
    if page._tabs.index() != tab:
        page._tabs.chosen.emit(tab)
    return page


async def form(stage: Stage) -> None:
    await setup(stage, FORM)


async def testable(stage: Stage) -> None:
    """Judge enabled, so that it can be tested too."""
    page = await setup(stage, FORM)
    if page._tests.judge.isHidden():
        await stage.edit_settings({"judge.enabled": True})
    await stage.until(lambda: not page._tests.judge.isHidden())


async def agent_tested(stage: Stage) -> None:
    """Agent test finished, with details to show."""
    page = await setup(stage, FORM)
    agent = page._tests.agent
    await stage.until(lambda: not agent.running)
    assert agent.look.isVisible(), agent.accessibleName()


async def judge_tested(stage: Stage) -> None:
    """Details of the judge's test are open."""
    page = await setup(stage, FORM)
    await stage.until(lambda: not (page._tests.judge.running or page._tests.judge.look.isHidden()))
    page._tests.judge.look.click()
    await stage.until(lambda: page._tests._sheet.is_open())


async def unjudged(stage: Stage) -> None:
    """Judge disabled again."""
    page = await setup(stage, FORM)
    if not page._tests.judge.isHidden():
        await stage.edit_settings({"judge.enabled": False})
    await stage.until(lambda: page._tests.judge.isHidden())


async def unfolded(stage: Stage) -> None:
    page = await setup(stage, FORM)
    for part in (page._form._advanced, page._form._backend):
        part.unfold(True)


async def differing(stage: Stage) -> None:
    """Algorithm setting that differs from its preset."""
    page = await setup(stage, FORM)
    await stage.until(lambda: not stage.session.writing)
    if page._form._method._own.isHidden():
        await stage.edit_settings({"train.algorithm.entropy": 0.01})
    await stage.until(lambda: not page._form._method._own.isHidden())


async def toml(stage: Stage) -> None:
    page = await setup(stage, FILE)
    if not page._toml.dirty:
        QTest.keyClicks(page._toml.editor, "# ")


async def conflict(stage: Stage) -> None:
    """File changed by another program under unsaved edits."""
    if stage.dialog("project.toml was changed by another program"):
        return
    page = await setup(stage, FILE)
    await stage.until(lambda: not stage.session.writing)
    file = stage.backend.lab / "project.toml"
    page._toml.editor.setPlainText("# mine\n" + file.read_text())
    file.write_text("# theirs\n" + file.read_text())
    page.save()
    await stage.until(lambda: stage.dialog("project.toml was changed by another program"))


async def scenarios(stage: Stage) -> None:
    page = await setup(stage, SCENARIOS)
    await stage.until(lambda: page._scenarios.model.loaded)


async def selected(stage: Stage) -> None:
    await scenarios(stage)
    tab = stage.page("setup")._scenarios
    tab._table.selectRow(0)


async def added(stage: Stage) -> None:
    await scenarios(stage)
    tab = stage.page("setup")._scenarios
    if not tab.model.dirty:
        stage.press("Add")


async def measured(stage: Stage) -> None:
    """Baseline started in the form has finished."""
    runs = stage.session.runs
    path = str(stage.backend.lab)
    await stage.until(
        lambda: any(r.kind == "baseline" and r.state == "finished" for r in runs.of(path)), 40
    )
    await scenarios(stage)


async def demonstrations(stage: Stage) -> None:
    page = await setup(stage, DEMONSTRATIONS)
    await stage.until(lambda: not page.tasks.busy("demonstrations"))


async def teacher(stage: Stage) -> None:
    page = await setup(stage, DEMONSTRATIONS)
    if not page._teacher.is_open():
        stage.studio.actions.trigger("sft.teacher")
    page._teacher.model.set_value("openai/scripted")


async def narrow(stage: Stage) -> None:
    """Setup at the smallest size of the window: the preflight is a strip."""
    await unjudged(stage)
    stage.studio.window.resize(*LEAST)
    stage.page("setup")._preflight.strip.set_open(False)


async def wide_again(stage: Stage) -> None:
    await unjudged(stage)
    stage.studio.window.resize(1280, 800)


SETUP = [
    Scene(
        "form",
        form,
        [
            Row("Sidebar._rows[run]", "page run"),
            Row("ChoiceRow: Browse…", "page models"),
            Row("PathField: Browse of ChoiceRow", "shown QFileDialog Choose the agent"),
            Row("ChoicesForm._copy", "copied .*atelier train"),
            Row("Preflight._again", "GET /forecast"),
            Row("AdvancedFold._fold", "shown FormRow"),
            Row("BackendCard._more", "shown FormRow"),
            Row("Preflight._measure", "POST /runs .*baseline"),
        ],
    ),
    Scene(
        "unfolded",
        unfolded,
        [
            Row("ToggleField._toggle of AdvancedFold", " /project .*mask_truncated", "Mask"),
            Row("ToggleField._toggle of BackendCard", " /project "),
        ],
    ),
    Scene("differing", differing, [Row("MethodCard._back", " /project .*preset")]),
    Scene(
        "toml",
        toml,
        [Row("TomlTab._discard", "disabled Button Discard"), Row("TomlTab._save", " /project ")],
    ),
    Scene(
        "conflict",
        conflict,
        [
            Row("Question: Show difference", "shown DifferenceField"),
            Row("Question: Cancel", "hidden Question"),
            Row("Question: Reload the file", "hidden Question"),
            Row("Question: Keep my changes", " /project .*mine"),
        ],
    ),
    Scene(
        "scenarios",
        scenarios,
        [
            Row("ScenariosTab: Add", "words Table .*-> 5 rows"),
            Row("ScenariosTab: Undo", "words Table .*-> 4 rows"),
            Row("ScenariosTab: Import…", "shown QFileDialog Import scenarios"),
        ],
    ),
    Scene(
        "selected",
        selected,
        [
            Row("ScenariosTab: Delete", "words Table .*-> 3 rows"),
            Row("ScenariosTab: Undo", "words Table .*-> 4 rows"),
        ],
    ),
    Scene("added", added, [Row("ScenariosTab._save", " /scenarios ")]),
    Scene("measured", measured, [Row("ScenariosTab._silent", "words Table .* [1-9] selected")]),
    Scene(
        "demonstrations",
        demonstrations,
        [
            Row("DemonstrationsTab._teacher", "shown TeacherSheet"),
            Row("DemonstrationsTab._again", "GET .*demonstrations"),
            Row("DemonstrationsTab._own", "POST .*demonstrations"),
            Row("ToggleField._toggle of DemonstrationsTab", " /project .*skip_bad_lines"),
            Row("DemonstrationsTab.train", "POST /runs .*sft", rest=True),
        ],
    ),
    Scene(
        "teacher",
        teacher,
        [
            Row("TeacherSheet: Close", "hidden TeacherSheet"),
            Row("TeacherSheet: Cancel", "hidden TeacherSheet"),
            Row("TeacherSheet._go", "POST /evaluations", rest=True),
        ],
    ),
    Scene(
        "testable",
        testable,
        [
            Row("CheckRow.test of ProjectChecks", "POST /arena", "Test agent"),
            Row("CheckRow.test of ProjectChecks", "POST /judges/check", "Test judge"),
        ],
    ),
    Scene(
        "agent tested", agent_tested, [Row("CheckRow.look of ProjectChecks", "shown CheckedSheet")]
    ),
    Scene("tested", judge_tested, [Row("CheckedSheet: Close", "hidden CheckedSheet")]),
    Scene("unjudged", unjudged, [Row("Preflight._train", "POST /runs ", rest=True)]),
    Scene(
        "narrow",
        narrow,
        [
            Row("PreflightStrip._panel", "shown Button Recalculate"),
            Row("PreflightStrip._train", "POST /runs ", rest=True),
        ],
    ),
    Scene("wide again", wide_again, [Row("Preflight._again", "GET /forecast")]),
]
