"""Run page: step strip, charts, side column and log; guide without a run, remedies on failure."""

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QStackedWidget, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.runs import Finding, Split
from engine.protocol.requests.runs import EditProject, TrajectoryQuery
from studio.actions.actions import Actions
from studio.pages.connection_bar import AwayBar
from studio.pages.page import Page
from studio.pages.review_bar import ReviewBar
from studio.pages.run.branch import BranchSheet
from studio.pages.run.branch_start import BranchStart
from studio.pages.run.charts.run_charts import RunCharts
from studio.pages.run.charts.spec import is_judged
from studio.pages.run.damaged import DamagedRun
from studio.pages.run.failure_area import FailureArea
from studio.pages.run.log_drawer import LogDrawer
from studio.pages.run.side_column import SideColumn
from studio.pages.run.strip import StripBlock
from studio.pages.run.trackers import TrackersCard
from studio.services.session import Session
from studio.store.runs.axes import positions
from studio.store.runs.state import HELD_OUT
from studio.store.runs.status_words import OUTSIDE
from studio.text import formatting
from studio.theme.plain_tooltips import set_tip
from studio.widgets.cards.empty_page import EmptyPage, Preparation
from studio.widgets.charts.grid.smoothing_slider import SmoothingSlider
from studio.widgets.charts.grid.zoom_button import ZoomButton
from studio.widgets.charts.link import ChartLink
from studio.widgets.controls.buttons import Button
from studio.widgets.layouts import add, hbox, vbox


class RunPage(Page):
    """Run page. Emits `trajectories_wanted(query)` when the user opens a point, cell, group or
    notice."""

    trajectories_wanted = Signal(object)

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions, self._run = actions, session.run
        self.charts = ChartLink(self)
        self.charts.set_smoothing(session.settings.current.smoothing)
        self._drawn: tuple[object, ...] = ()
        self._failure = FailureArea(session, actions)
        self._strip, self._grid = StripBlock(self.charts), RunCharts(session, self.charts)
        self._side, self._log = SideColumn(), LogDrawer(session.run)
        self._trackers = TrackersCard(session, self.tasks)
        self._side.add_card(self._trackers)
        self._branch = BranchSheet(self)
        self._branching = BranchStart(session, self._branch)
        self._empty = EmptyPage("No run yet", "", drawing="run")
        self._stack = QStackedWidget()
        self._build()
        self._wire()

    def enter(self) -> None:
        self._side.set_ticking(True)
        self.charts.set_smoothing(self.session.settings.current.smoothing)
        self._trackers.look()
        self._drawn = ()
        self._refresh()

    def leave(self) -> None:
        self._side.set_ticking(False)
        self._trackers.rest()

    def toggle_log(self) -> None:
        self._log.setVisible(not self._log.isVisible())

    def _build(self) -> None:
        self._body = hbox((self._grid, 1), self._side, spacing=12)
        live = QWidget()
        self._column = vbox(parent=live, margins=(16, 12, 16, 16), spacing=12)
        self._review = ReviewBar(self.session)
        add(
            self._column,
            AwayBar(self.session),
            self._review,
            self._failure,
            self._strip,
            (self._body, 1),
            self._log,
        )
        self._failure.log_requested.connect(self._log.show)
        self._log.hide()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(live)
        self._damaged = DamagedRun(self.session, self.tasks, self._actions)
        self._stack.addWidget(self._damaged)
        vbox(self._stack, parent=self)
        self._add = Button("Charts", "quiet", icon="list-filter", height=24)
        set_tip(self._add, "Hide charts, or move charts from the lower sections to the main charts")
        self._zoom = ZoomButton(self.charts)
        for tool in (self._zoom, self._add, SmoothingSlider(self.charts)):
            self._strip.add_tool(tool)

    def _wire(self) -> None:
        self._side.follow(self._run)
        self._run.changed.connect(self._refresh)
        self._run.selected.connect(self._selected)
        self.session.project_changed.connect(self._refresh)
        self._log.closed.connect(self._log.hide)
        self._add.clicked.connect(lambda: self._grid.show_menu(self._add))
        self._grid.step_opened.connect(self._open_step)
        self._grid.range_opened.connect(lambda low, high: self._want(step=low, step_to=high))
        self._strip.step_opened.connect(self._open_step)
        self._strip.unscored_wanted.connect(lambda: self._want(state="unscored"))
        self._strip.axis_chosen.connect(self._set_axis)
        self._side.group_opened.connect(lambda step, group: self._want(step=step, group=group))
        self._side.finding_opened.connect(self._open_finding)
        self._side.finding_acted.connect(self._act)
        self._side.log_wanted.connect(self._log.show)
        self._empty.action_requested.connect(self._begin)
        self._empty.second_requested.connect(lambda: self.session.train(overrides=ONE_STEP))
        self._empty.preparation_requested.connect(self._prepare)
        self._review.groups_wanted.connect(lambda step: self._want(step=step, split="train"))
        self._actions.bind(run_log=self.toggle_log, run_branch=self.open_branch)
        self._strip.branch_wanted.connect(self.open_branch)

    # The run

    @Slot()
    def _selected(self) -> None:
        self._drawn = ()
        self.charts.set_zoom(None)
        self.charts.set_chosen(None)

    @Slot()
    def _refresh(self) -> None:
        """Update up to 30 times per second; charts and strip only on a new step or validation."""
        if not self.isVisible():
            return
        run, state = self._run, self._run.state
        summary = run.summary
        if summary is not None and summary.state == "damaged":
            self._damaged.show_run(summary)
            self._stack.setCurrentWidget(self._damaged)
            return
        empty = summary is None or summary.kind in ("baseline", "evaluation", "arena", "writing")
        self._stack.setCurrentIndex(0 if empty else 1)
        if empty:
            self._show_empty()
            return
        kind = summary.kind if summary is not None else ""
        self._grid.show_kind(kind, is_judged(state))
        self._side.show_run(state)
        self._strip.show_facts(run)
        drawn = (
            run.run_id,
            state.status,
            state.step,
            len(state.steps),
            len(state.validations),
            len(state.series.get(HELD_OUT, ())),
            len(state.checkpoints),
            state.planned,
            len(state.resumes),
            len(state.branches),
            len(run.origin.steps) if run.origin else 0,
            tuple(state.findings),
            tuple(state.alerts),
        )
        if drawn != self._drawn:
            self._drawn = drawn
            self._redraw()

    def _redraw(self) -> None:
        self._strip.show_run(self._run)
        self._set_axis(self.charts.kind)
        self._grid.fill_all()
        self._failure.show_run(self._run)

    def _set_axis(self, kind: str) -> None:
        state = self._run.state
        self.charts.set_planned(state.planned)
        places = positions(state, kind)
        self.charts.set_axis(kind if places else "step", places or None)

    def open_branch(self, step: int | None = None) -> None:
        """Open the form for a branch of the run from `step`; None: from the step under the chart's
        cursor, else from the newest checkpoint."""
        summary, state = self._run.summary, self._run.state
        if summary is None or state.spec is None:
            return
        self.session.place_wanted.emit("run")
        chosen = step if step is not None else self.charts.crosshair
        self._branch.show_run(summary, state, chosen)
        self._branch.open()

    # Empty page

    def _show_empty(self) -> None:
        project = self.session.project
        view = project.view
        config = view.config if view else None
        if config is None:
            self._empty.set_words("The project is invalid", "Open Setup to see the errors.")
            self._empty.set_actions("Train")
            return
        if project.outside:
            self._empty.set_words(*OUTSIDE)
            self._empty.set_actions("Read the guide", icon="book-open")
            return self._empty.set_preparations([])
        train = config.train
        self._empty.set_words(
            "No run yet",
            f"Each step samples {train.group_size} rollouts for each of {train.groups} scenarios, "
            "compares their rewards and updates the model. Charts appear here.",
        )
        if living := self.session.runs.active():
            self._empty.set_actions(f"Open the active run of {living[0].project}", icon="activity")
        else:
            steps = formatting.plural(train.steps, "step")
            self._empty.set_actions(
                "Train", steps, second="Train one step", key="Ctrl ↵", icon="play"
            )
        self._empty.set_preparations(self._preparations())

    def _preparations(self) -> list[Preparation]:
        project = self.session.project
        counts = {info.split: info.count for info in (project.view.splits if project.view else ())}
        problems = project.problems
        read = _valid(counts) if not problems else _invalid(problems)
        runs = self.session.runs.of(project.path)
        measured = [run for run in runs if run.kind == "baseline" and run.validation]
        if measured and (rate := measured[0].validation):
            words = f"{formatting.percent(rate.mean)} solved before training"
            return [read, Preparation("baseline", "Baseline measured", words, done=True)]
        words = "Optional: measure how many scenarios the model solves before training"
        return [read, Preparation("baseline", "Baseline", words, button="Measure")]

    def _begin(self) -> None:
        if self.session.project.outside:
            self._actions.trigger("app.help")
        elif living := self.session.runs.active():
            self.session.open_run(living[0])
        else:
            self._actions.trigger("run.train")

    def _prepare(self, key: str) -> None:
        if key == "baseline":
            self.session.train("baseline", show=False)
        self._actions.trigger("go.setup")

    # Charts

    # Links to trajectories

    def _open_step(self, step: int) -> None:
        if self._grid.supervised:  # SFT runs have no trajectories
            return
        if step > 0:
            self._want(step=step)
        else:
            self._want(split="validation", step=0)

    def _open_finding(self, finding: Finding) -> None:
        step = self._run.state.done or None
        kind, _, place = finding.where.partition(":")
        if kind in ("unscored", "truncated", "marked"):
            self._want(state=kind)
        elif kind == "no_signal":
            self._want(step=step, split="train", signal=False)
        elif kind == "chart" and place in self._grid.bound:
            self._grid.expand(place)
        elif kind == "group" and place.isdigit():
            self._want(step=step, group=int(place))
        else:
            self._want(step=step)

    def _act(self, finding: Finding) -> None:
        """Apply the action of a finding: pause the run, or veto a metric in later runs."""
        what, _, metric = finding.action.partition(":")
        view = self.session.project.view
        if what == "pause":
            self.session.command("pause")
        elif view is not None and view.config is not None:
            known = [c.model_dump(exclude_defaults=True) for c in view.config.reward.constraints]
            if any(c["part"] == metric for c in known):
                self.session.notice.emit(f"A constraint on {metric} already exists.")
                return
            values = {"reward.constraints": [*known, {"part": metric, "above": 0.0}]}
            message = f"From the next run on, trajectories with {metric} above 0 are vetoed."
            self.session.edit(
                EditProject(values=values),
                lambda _: self.session.notice.emit(message),
                self.session.problem_raised.emit,
            )

    def _want(self, **query: object) -> None:
        self.trajectories_wanted.emit(TrajectoryQuery.model_validate(query))


ONE_STEP = {"train.steps": 1}
"""Overrides of "Train one step"."""


def _valid(counts: dict[Split, int]) -> Preparation:
    words = (
        f"{counts.get('train', 0):,} training and {counts.get('validation', 0):,} "
        "validation scenarios"
    )
    return Preparation("setup", "Project is valid", words, done=True)


def _invalid(problems: list[Problem]) -> Preparation:
    title = f"{formatting.plural(len(problems), 'problem')} to fix"
    return Preparation("setup", title, problems[0].message, button="Open Setup")
