"""Button scenes of the Run page over a real engine: finished, active, failed, damaged, no run."""

from typing import Any

from engine.protocol.requests.runs import StartRun
from studio.pages.run.damaged import DamagedRun
from tests.studio.buttons.stage import Row, Scene, Stage

LONG = {"train.steps": 500, "train.validate_every": 0, "train.checkpoint_every": 1}


async def finished(stage: Stage) -> Any:
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    page = stage.page("run")
    await stage.until(lambda: stage.session.run.state.done == 3)
    return page


async def plain(stage: Stage) -> None:
    await finished(stage)


async def zoomed(stage: Stage) -> None:
    page = await finished(stage)
    page.charts.set_zoom((1.0, 2.0))


async def log(stage: Stage) -> None:
    page = await finished(stage)
    if not page._log.isVisible():
        stage.studio.actions.trigger("run.log")


async def branch(stage: Stage) -> None:
    page = await finished(stage)
    if not page._branch.is_open():
        stage.studio.actions.trigger("run.branch")


async def active_run(stage: Stage, place: str = "run", **values: Any) -> None:
    """Active run of 500 steps."""
    await stage.open_run(stage.backend.lab)
    session = stage.session
    if session.run.summary is None or not session.run.state.active:
        request = StartRun(project=str(stage.backend.lab), overrides={**LONG, **values})
        session.start_run(request)
        await stage.until(lambda: session.run.state.active and session.run.state.done >= 1, 60)
    stage.page(place)


async def training(stage: Stage) -> None:
    await active_run(stage)
    if stage.session.run.state.status == "paused":
        stage.session.command("continue")
    await stage.until(lambda: stage.session.run.state.status == "running")


async def other_project_training(stage: Stage) -> None:
    """Page of a project with only a baseline, while another project trains."""
    await baseline_only(stage)


async def training_home(stage: Stage) -> None:
    await active_run(stage, "home")


async def training_elsewhere(stage: Stage) -> None:
    await training(stage)
    stage.page("setup")


async def paused(stage: Stage) -> None:
    await active_run(stage)
    if stage.session.run.state.status == "running":
        stage.session.command("pause")
    await stage.until(lambda: stage.session.run.state.status == "paused")


async def stopped(stage: Stage) -> None:
    await stage.until(lambda: stage.session.run.state.status == "stopped")
    stage.page("run")


async def reviewing(stage: Stage, place: str = "run") -> None:
    """Run that waits for a review after every step."""
    values = {**LONG, "train.review_every": 1}
    session = stage.session
    if session.run.summary is None or not session.run.state.active:
        session.start_run(StartRun(project=str(stage.backend.lab), overrides=values))
    await stage.until(lambda: session.run.state.review is not None, 60)
    stage.page(place)


async def reviewing_trajectories(stage: Stage) -> None:
    await reviewing(stage, "trajectories")


async def failed(stage: Stage) -> None:
    await stage.open_run(stage.backend.failing, stage.backend.failed)
    stage.page("run")
    await stage.until(lambda: stage.session.run.state.status == "failed")


async def damaged(stage: Stage) -> Any:
    await stage.open_run(stage.backend.lab, stage.backend.damaged)
    page = stage.page("run")
    await stage.until(lambda: page.findChild(DamagedRun).isVisible())
    return page


async def broken(stage: Stage) -> None:
    await damaged(stage)


async def deleting(stage: Stage) -> None:
    await damaged(stage)
    if not stage.dialog("Delete run "):
        stage.studio.actions.trigger("run.remove")
        await stage.until(lambda: stage.dialog("Delete run "))


async def deleting_another(stage: Stage) -> None:
    await stage.open_run(stage.backend.lab, stage.backend.lost)
    stage.page("run")
    stage.studio.actions.trigger("run.remove")
    await stage.until(lambda: stage.dialog("Delete run "))


async def empty(stage: Stage) -> None:
    await stage.open_run(stage.backend.fresh)
    stage.page("run")


async def baseline_only(stage: Stage) -> None:
    """Project with only a baseline."""
    runs = stage.session.runs.of(str(stage.backend.fresh))
    await stage.open_run(
        stage.backend.fresh, next(run.id for run in runs if run.kind == "baseline")
    )
    stage.page("run")


async def nothing_kept(stage: Stage) -> None:
    await stage.open_run(stage.backend.fresh)
    stage.page("checkpoints")


async def nothing_read(stage: Stage) -> None:
    await stage.open_run(stage.backend.fresh)
    stage.page("trajectories")


RUN = [
    Scene(
        "finished",
        plain,
        [
            Row("RunPage._add", "shown QMenu"),
            Row("ChartCard._info of RunCharts", "shown Tip Reward"),
            Row("ChartCard._more of RunCharts", "shown QMenu Logarithmic axis"),
            Row("ChartCard._expand of RunCharts", "hidden ChartCard", "Expand Reward"),
            Row("DiagnosisCard._show of SideColumn", "page trajectories"),
            Row("DiagnosisCard._close of SideColumn", "hidden DiagnosisCard"),
        ],
    ),
    Scene("zoomed", zoomed, [Row("RunPage._zoom", "hidden ZoomButton")]),
    Scene("log", log, [Row("CardHeader: Close the log of LogDrawer", "hidden LogDrawer")]),
    Scene(
        "branch",
        branch,
        [
            Row("BranchSheet: Close", "hidden BranchSheet"),
            Row("BranchSheet: Cancel", "hidden BranchSheet"),
            Row("BranchSheet._go", "POST /runs .*@3", rest=True),
        ],
    ),
    Scene(
        "failed",
        failed,
        [
            Row("ErrorCard: Show log of FailureArea", "shown LogDrawer"),
            Row("ErrorCard: Copy report of FailureArea", "copied "),
            Row(
                "_RemedyRow._button of FailureArea",
                "POST .*/command .*resume",
                "Resume|Try",
                rest=True,
            ),
        ],
    ),
    Scene(
        "damaged",
        broken,
        [
            Row("ErrorCard: Show log of DamagedRun", "copied |shown Toast This run has no log"),
            Row("ErrorCard: Copy report of DamagedRun", "copied "),
            Row("_RemedyRow._button of DamagedRun", "shown Question Delete run", "Delete"),
        ],
    ),
    Scene("deleting", deleting, [Row("Question: Cancel", "hidden Question Delete run")]),
    Scene("damaged", broken, [Row("_RemedyRow._button of DamagedRun", "POST .*/repair", "Repair")]),
    Scene("deleting another", deleting_another, [Row("Question: Delete", "DELETE /runs/")]),
    Scene(
        "nothing kept",
        nothing_kept,
        [Row("EmptyPage: Open the run of CheckpointsPage", "page run")],
    ),
    Scene("nothing to read", nothing_read, [Row("NoTrajectories: Go to the run", "page run")]),
    Scene(
        "empty",
        empty,
        [
            Row("_PreparationRow: Measure of RunPage", "POST /runs .*baseline", rest=True),
            Row("EmptyPage: Train one step of RunPage", "POST /runs .*train.steps", rest=True),
        ],
    ),
    Scene(
        "nothing learned",
        baseline_only,
        [Row("EmptyPage: Train of RunPage", "POST /runs ", rest=True)],
    ),
    Scene(
        "training",
        training,
        [
            Row("FlightCard._rows[]", "page trajectories"),
            Row("PageHeader.train", "shown QMenu", "Training"),
            Row("PageHeader._stop", "shown QMenu After this step"),
            Row("PageHeader._pause", "POST .*/command .*pause"),
        ],
    ),
    Scene(
        "another trains",
        other_project_training,
        [Row("EmptyPage: Open the active run of lab of RunPage", "page run|words ")],
    ),
    Scene("training, on Home", training_home, [Row("RunBanner._open of HomePage", "page run")]),
    Scene(
        "training, on Setup",
        training_elsewhere,
        [Row("NowTraining._pause", "POST .*/command .*pause")],
    ),
    Scene(
        "paused",
        paused,
        [Row("PageHeader.train", "POST .*/command .*continue", "Resume", rest=True)],
    ),
    Scene(
        "stopped",
        stopped,
        [Row("PageHeader.train", "POST .*/command .*resume", "Resume", rest=True)],
    ),
    Scene(
        "reviewing",
        reviewing,
        [
            Row("ReviewBar._open", "page trajectories"),
            Row("ReviewBar._done", "POST .*/command .*reviewed"),
        ],
    ),
    Scene(
        "reviewing, on Trajectories",
        reviewing_trajectories,
        [
            Row("ReviewBar._open", "POST .*/groups"),
            Row("ReviewBar._done", "POST .*/command .*reviewed", rest=True),
        ],
    ),
]
