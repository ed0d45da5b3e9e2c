"""Button scenes that need fake engine data: environments, MCP servers, GPUs, trackers."""

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine.protocol.config.tracking import TrackerList, TrackerView
from engine.protocol.events import run as e
from engine.protocol.problems import Problem
from engine.protocol.records.machine.environments import (
    ChosenEngine,
    EngineChoice,
    EnvironmentTicked,
)
from engine.protocol.records.runs import Finding, Parent
from studio.pages.run.trackers import TrackersCard
from tests.studio.buttons.stage import Row, Scene, Stage
from tests.studio.fakes.environments import AGENT, HOME, at_home
from tests.studio.fakes.gpus import GB, card

GIGABYTES = "an environment is installed, which takes minutes and gigabytes"
PACKAGES = "packages of MCP servers are installed first, from an index"
BRANCH = "two runs, one of which branched from the other, take a minute to train"
CARD = "a graphics card with too little memory"
WRONG = "a training that goes wrong so much that a pause is advised"
LONG = "a model that takes seconds to answer"
TRACKER = "a tracker that has an address, and one that is down"
TICK = EnvironmentTicked(stage="downloading", words="torch", done=12, total=228, share=0.1)


async def environments(stage: Stage, **values: Any) -> None:
    stage.backend.environments.steps = 10_000
    stage.backend.environments.change("engine-gpu", **values)
    page = stage.page("settings")
    page.show_section("engines")
    page._engines.look()


async def branch(stage: Stage) -> None:
    """Checkpoints of a run that has branched from another one."""
    made, other = list(stage.backend.runs.values())[:2]
    parent = Parent(run_id=other.spec.id, name=other.spec.name, step=1)
    summary = stage.backend.summaries[made.spec.id]
    stage.backend.summaries[summary.id] = summary.model_copy(update={"parent": parent})
    stage.session.refresh()
    stage.session.select_run(summary.id)
    page = stage.page("checkpoints")
    await stage.until(lambda: stage.studio.actions.holds("branched"))
    page._list.set_branched(True)


async def absent(stage: Stage) -> None:
    await environments(stage, action=None, tick=None, state="absent", home="", python="")


async def installing(stage: Stage) -> None:
    await environments(stage, action="install", tick=TICK, state="absent")


async def partial(stage: Stage) -> None:
    await environments(stage, action=None, tick=None, state="partial", arrived=174)


async def broken(stage: Stage) -> None:
    await environments(stage, action=None, tick=None, state="broken", wrong=["torch is not whole."])


async def ready(stage: Stage) -> None:
    await environments(stage, action=None, tick=None, wrong=[], **at_home("engine-gpu"))


async def at_rest(stage: Stage) -> None:
    """No run is active: another engine may be used."""
    stage.backend.summaries.clear()
    await ready(stage)


async def engine_selected(stage: Stage) -> None:
    """Another engine is selected, but the previous one still runs."""
    fake = stage.backend.environments
    engine = ChosenEngine(name="engine-gpu", home=HOME.format("engine-gpu"))
    fake.choice, fake.running = (
        EngineChoice(current=engine, previous=ChosenEngine()),
        ChosenEngine(),
    )
    await ready(stage)


async def tools(stage: Stage) -> Any:
    """Show a project with an MCP server and installed packages."""
    engine = stage.backend
    path = str(engine.workspace / "inbox-scout")
    engine.environments.change(AGENT, **at_home("agent"))
    if path not in engine.authoring.servers:
        engine.authoring.add_server(path)
    page = stage.page("setup")
    page._tools.look()
    await stage.until(page._tools.servers.isVisible)
    return page


async def plain_tools(stage: Stage) -> None:
    await tools(stage)


async def tools_listed(stage: Stage) -> None:
    page = await tools(stage)
    if not page._tools.servers.offered:
        page._tools.servers.look()
    await stage.until(lambda: page._tools.servers.offered)


async def server_sheet(stage: Stage) -> None:
    page = await tools(stage)
    if not page._tools.servers.sheet.is_open():
        page._tools.servers.add()
    page._tools.servers.sheet.name.set_value("other")
    page._tools.servers.sheet.command.set_value("python s.py")


async def describing(stage: Stage) -> None:
    shown: Any = stage.studio.describing.sheet
    if not shown.is_open():
        stage.page("home")
        stage.studio.actions.trigger("project.describe")
    shown.task.name.set_value("tooled")
    if not shown.task.tools.wanted.isChecked():
        stage.press("The agent uses tools from MCP servers")


async def environment(stage: Stage) -> None:
    """Show the sheet of a project from verifiers, filled in."""
    shown: Any = stage.studio.describing.environment
    stage.backend.environments.change(AGENT, **at_home("agent"))
    if not shown.is_open():
        stage.page("home")
        stage.studio.actions.trigger("project.environment")
    if shown.name.isEnabled():
        shown.name.set_value("textarena")
        shown.folder.set_value("games")


async def too_small(stage: Stage) -> None:
    """GPU on which the settings do not fit."""
    engine, path = stage.backend, str(stage.backend.workspace / "inbox-scout")
    engine.project_store.cards = (card(total=24 * GB, ours=0, others=3 * GB),)
    view = engine.project_store.projects[path]
    config = view.config.model_dump() | {
        "backend": {**view.config.backend.model_dump(), "sampler": "vllm"}
    }
    config["model"]["max_context"] = 4096
    engine.project_store.projects[path] = view.model_copy(
        update={"config": type(view.config).model_validate(config)}
    )
    stage.session.show_project(engine.project_store.projects[path])
    stage.page("setup")
    await stage.until(lambda: stage.page("setup")._preflight.cards.isVisible())


async def fixed(stage: Stage) -> None:
    await stage.until(lambda: stage.page("setup")._preflight.cards._undo.isVisible())


async def diagnosed(stage: Stage) -> None:
    """Run with a diagnosis that offers to pause it."""
    run = stage.backend.runs[stage.session.run.run_id]
    stage.page("run")
    if not stage.session.run.state.findings:
        finding = Finding(code="apart", title="They disagree.", words="", action="pause")
        run.say(e.DiagnosisChanged(step=24, findings=[finding]))
    await stage.until(lambda: stage.session.run.state.findings)


async def answering(stage: Stage) -> None:
    """Two models whose answers are held back."""
    stage.backend.held.add("POST /arena")
    page = stage.page("checkpoints")
    await stage.until(lambda: len(page._arena._talk.sides) > 0)
    if not page._arena._talk.asking:
        QTest.keyClicks(page._arena._ask, "Say 1")
        QTest.keyClick(page._arena._ask, Qt.Key.Key_Return)
    await stage.until(lambda: page._arena._talk.asking)


async def trackers(stage: Stage) -> None:
    down = Problem(code="tracking.down", message="MLflow cannot be reached.")
    stage.backend.tracking.views[stage.session.run.run_id] = TrackerList(
        trackers=[
            TrackerView(name="wandb", state="in_step", url="https://wandb.ai/x"),
            TrackerView(name="mlflow", state="unsent", behind=2, problem=down),
        ]
    )
    page = stage.page("run")
    card: Any = page.findChild(TrackersCard)
    card.look()
    await stage.until(card.isVisible)


BESIDE = [
    Scene("branch", branch, [Row("ListCard._compare", "page runs")], fake=BRANCH),
    Scene(
        "absent",
        absent,
        [Row("EnvironmentRow: Install", "POST /environments/.* .*install")],
        fake=GIGABYTES,
    ),
    Scene(
        "installing",
        installing,
        [Row("EnvironmentRow: Cancel", "POST /environments/engine-gpu .*cancel")],
        fake=GIGABYTES,
    ),
    Scene(
        "begun",
        partial,
        [Row("EnvironmentRow: Discard", "POST /environments/engine-gpu .*remove")],
        fake=GIGABYTES,
    ),
    Scene(
        "begun",
        partial,
        [Row("EnvironmentRow: Resume", "POST /environments/engine-gpu .*install")],
        fake=GIGABYTES,
    ),
    Scene(
        "broken",
        broken,
        [Row("EnvironmentRow: Repair", "POST /environments/.* .*repair")],
        fake=GIGABYTES,
    ),
    Scene(
        "ready",
        ready,
        [Row("EnvironmentRow: Remove", "POST /environments/.* .*remove")],
        fake=GIGABYTES,
    ),
    Scene(
        "tools",
        plain_tools,
        [
            Row("ToolServers._look", "POST /project/servers"),
            Row("ToolServers._add", "shown ServerSheet"),
        ],
        fake=PACKAGES,
    ),
    Scene(
        "looked", tools_listed, [Row("ServerRow.tools[]", " /project/servers .*")], fake=PACKAGES
    ),
    Scene(
        "server sheet",
        server_sheet,
        [
            Row("ServerSheet: Close", "hidden ServerSheet"),
            Row("ServerSheet: Cancel", "hidden ServerSheet"),
            Row("ServerSheet._add", " /project/servers .*other"),
        ],
        fake=PACKAGES,
    ),
    Scene(
        "tools",
        plain_tools,
        [Row("ServerRow._remove", " /project/servers .*library")],
        fake=PACKAGES,
    ),
    Scene(
        "describing",
        describing,
        [Row("ToolsPart._one", "POST /drafts|POST .*tools|shown ServerSheet")],
        fake=PACKAGES,
    ),
    Scene("too small", too_small, [Row("CardMemory._offered[]", " /project ")], fake=CARD),
    Scene("fixed", fixed, [Row("CardMemory._undo", " /project ")], fake=CARD),
    Scene(
        "diagnosed",
        diagnosed,
        [Row("DiagnosisCard._action of SideColumn", "POST .*/command .*pause", "Pause")],
        fake=WRONG,
    ),
    Scene(
        "answering", answering, [Row("ArenaCard._stop", "shown Button Run a scenario")], fake=LONG
    ),
    Scene(
        "trackers",
        trackers,
        [
            Row("TrackerLine._open", "url https://wandb.ai/x"),
            Row("TrackersCard._send", "POST .*/track"),
        ],
        fake=TRACKER,
    ),
    Scene(
        "ready, without a run",
        at_rest,
        [Row("EnvironmentRow: Use", "POST /engine/use .*engine-gpu")],
        fake=GIGABYTES,
    ),
    Scene(
        "chosen",
        engine_selected,
        [
            Row("EnvironmentRow: Restart with this engine", "POST /engine/use .*engine-gpu"),
            Row("EnginesCards._back", "POST /engine/use .*built-in"),
        ],
        fake=GIGABYTES,
    ),
    Scene(
        "environment",
        environment,
        [
            Row("EnvironmentSheet: Close", "hidden EnvironmentSheet"),
            Row("EnvironmentSheet._main", "POST /drafts/environment", "Create"),
        ],
        fake=PACKAGES,
    ),
    Scene(
        "environment created",
        environment,
        [Row("EnvironmentSheet._main", "PUT /drafts/environment|page setup", "Read data set")],
        fake=PACKAGES,
    ),
]
