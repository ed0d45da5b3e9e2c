"""Judge page: rubric on the left; judge settings, preview and agreement on the right."""

import random
from contextlib import aclosing
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QSplitter, QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.judging import (
    Disagreement,
    JudgeOption,
    RubricView,
    Suggestion,
    TrialPrice,
    Tried,
)
from engine.protocol.records.labels import Agreement, Annotators, Label
from engine.protocol.requests.review import ReviewQuery
from engine.protocol.requests.runs import EditProject, TrajectoryQuery, TryJudge
from studio.actions.actions import Actions
from studio.pages.judge.agreement import AgreementCard
from studio.pages.judge.annotators import AnnotatorSheet
from studio.pages.judge.grading import GradingCard
from studio.pages.judge.judge_settings import JudgeChoice
from studio.pages.judge.rescoring import TrialCard
from studio.pages.judge.rubric_editor import RubricEditor
from studio.pages.judge.saving import RubricSaving
from studio.pages.judge.sheets import ComparisonSheet, DisagreementSheet, SuggestionSheet
from studio.pages.judge.starters import StarterRubrics
from studio.pages.page import Page, scrolled
from studio.services.session import Session
from studio.store.projects.grading import Place, graded, next_group
from studio.widgets.controls.segmented import Segmented
from studio.widgets.layouts import STRETCH, hbox, vbox

PRICE_AFTER_MS = 900
NARROW_PX = 1000
"""Width of the page below which rubric and judge are tabs."""
LEFT_PX = (400, 720)
WIDEST_PX = 4000
GROUPS = 24
GRADED_MOST = 200
"""Maximum number of groups among which the next one to grade is selected."""


class JudgePage(Page):
    """Judge page; emits `group_wanted(split, step, group)` to open a group and
    `grading_wanted(split, step, group)` to grade it blind."""

    group_wanted = Signal(str, int, int)
    grading_wanted = Signal(str, int, int)

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._actions = actions
        self._project = ""
        self._run = ""
        self._counted = ("", -1)
        """(run id, step) of the last count of groups and labels."""
        self._view: RubricView | None = None
        self._options: list[JudgeOption] = []
        self._rows: list[Agreement] = []
        self._labels: list[Label] = []
        self._cases: list[Disagreement] = []
        self._groups = 0
        self._placed = False
        self.editor, self.choice = RubricEditor(), JudgeChoice()
        self.trial, self.agreement, self.grading = TrialCard(), AgreementCard(), GradingCard()
        self._saving = RubricSaving(session, self.tasks, self.editor)
        self._sheet = DisagreementSheet(self)
        self._people = AnnotatorSheet(self)
        self._comparison, self._suggestion = ComparisonSheet(self), SuggestionSheet(self)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(PRICE_AFTER_MS)
        self._soon.timeout.connect(self._price)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        right, left = QWidget(), QWidget()
        vbox(
            self.choice,
            self.trial,
            self.agreement,
            self.grading,
            STRETCH,
            parent=right,
            margins=16,
            spacing=12,
        )
        self._starters = StarterRubrics()
        self._starters.chosen.connect(self.editor.show_source)
        vbox(self._starters, (self.editor, 1), parent=left, spacing=0)
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._splitter.addWidget(left)
        self._left, self._right = left, scrolled(right)
        self._splitter.addWidget(self._right)
        self._splitter.setStretchFactor(0, 3)
        self._splitter.setStretchFactor(1, 4)
        left.setMinimumWidth(LEFT_PX[0])
        left.setMaximumWidth(LEFT_PX[1])
        self.remember_splitter("judge", self._splitter)
        self._tabs = Segmented(("Rubric", "Judge"), "Judge view")
        self._tab_line = QWidget()
        hbox(self._tabs, STRETCH, parent=self._tab_line, margins=(16, 10, 16, 8))
        self._tab_line.hide()
        vbox(self._tab_line, (self._splitter, 1), parent=self, spacing=0)

    def _wire(self) -> None:
        session = self.session
        session.project_changed.connect(self._project_changed)
        session.run.selected.connect(self._run_selected)
        session.run.selected.connect(self._forget_wishes)
        session.run.changed.connect(self._show_spent)
        session.run.changed.connect(self._step_finished)
        self._tabs.chosen.connect(lambda _: self._place_sides())
        self.editor.edited.connect(lambda _: self._price_soon())
        self._saving.saved.connect(self._saved)
        self._saving.refused.connect(self._refused)
        self.editor.edited.connect(lambda _: self._offer())
        self.editor.use_wanted.connect(self._use)
        self.choice.models_chosen.connect(self._choose)
        self.choice.local_chosen.connect(
            lambda: self._edit({"judge.models": [], "judge.local": True})
        )
        self.choice.enabled_chosen.connect(lambda on: self._edit({"judge.enabled": on}))
        self.choice.search_wanted.connect(self._search)
        self.choice.try_wanted.connect(self._try)
        self.choice.cancel_wanted.connect(self._cancel)
        self.choice.setup_wanted.connect(lambda: self._actions.trigger("go.setup"))
        self.trial.group_opened.connect(self.group_wanted)
        self._sheet.group_wanted.connect(self.group_wanted)
        self.agreement.disagreements_wanted.connect(self._sheet.open)
        self.agreement.comparison_wanted.connect(self._comparison.open)
        self.agreement.annotators_wanted.connect(self._show_people)
        self.agreement.export_wanted.connect(lambda: self._actions.trigger("labels.export"))
        self.agreement.import_wanted.connect(lambda: self._actions.trigger("labels.import"))
        self.agreement.suggestion_wanted.connect(self._suggest)
        self._suggestion.taken.connect(self.editor.show_source)
        self.grading.next_wanted.connect(self.grade_next)
        self.grading.set_by_queue(self.session.settings.current.grade_by_queue)
        self.grading.order_chosen.connect(
            lambda on: self.session.settings.update(grade_by_queue=on)
        )
        grade = QShortcut(QKeySequence("B"), self)
        grade.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        grade.activated.connect(self.grade_next)

    def enter(self) -> None:
        self.setFocus(Qt.FocusReason.OtherFocusReason)  # page shortcuts work immediately
        self._project_changed()
        self._run_selected()
        self.tasks.run("labels", self._look(), self._show_trust)

    def save(self) -> None:
        self.editor.save()

    # Display

    def _project_changed(self) -> None:
        path, view = self.session.project.path, self.session.project.view
        self.editor.turn_to(path)
        if not self.isVisible() or view is None or view.config is None:
            return
        self._show_judge()
        self._show_spent()
        if path != self._project:
            self._project = path
            self.tasks.run("judges", self.session.client.judges(), self._found)
        job = self.session.client.rubric(path)
        self.tasks.run("rubric", job, lambda found: self._show_rubric(path, found))

    def _run_selected(self) -> None:
        if not self.isVisible() or self._run == self.session.run.run_id:
            return
        self._run = self.session.run.run_id
        self._counted = (self._run, self.session.run.state.done)
        self._soon.stop()
        for job in ("trial", "price"):
            self.tasks.cancel(job)
        self.trial.show_tried([], "", "")
        self.choice.show_nothing("Counting the stored groups of this run…")
        self.tasks.run("labels", self._look(), self._show_trust)

    def _step_finished(self) -> None:
        """Recount groups and labels after a step."""
        place = (self.session.run.run_id, self.session.run.state.done)
        if not self.isVisible() or place == self._counted or place[0] != self._run:
            return
        self._counted = place
        self.tasks.run("labels", self._look(), self._show_trust)

    def _forget_wishes(self) -> None:
        """Cancel pending requests of the previous run."""
        for job in ("next", "suggest"):
            self.tasks.cancel(job)

    def _show_rubric(self, path: str, view: RubricView) -> None:
        """Show a rubric if its project is still open."""
        if path != self.session.project.path:
            return
        self._view = view
        config = self.session.project.view.config if self.session.project.view else None
        self.editor.show_view(view, config.judge.rubric if config else "rubric.md")
        self._starters.setVisible(not view.versions)
        self._offer()
        self._price_soon()

    def _found(self, options: list[JudgeOption]) -> None:
        self._options = options
        self._show_judge()

    def _search(self) -> None:
        """Search this machine for model servers that were started since the project was opened."""
        self.choice.show_searching()

        def found(options: list[JudgeOption]) -> None:
            self._found(options)
            self.choice.show_found(options)

        def failed(problem: Problem) -> None:
            self.choice.show_found(self._options)
            self.session.problem_raised.emit(problem)

        self.tasks.run("judges", self.session.client.judges(), found, failed)

    def _show_judge(self) -> None:
        view = self.session.project.view
        if view is not None and view.config is not None:
            used = list(dict.fromkeys(row.judge for row in self._rows))
            self.choice.show_judge(view.config.judge, self._options, used)

    def _show_spent(self) -> None:
        view = self.session.project.view
        if self.isVisible() and view is not None and view.config is not None:
            self.choice.show_spent(self.session.run.state.judge_usd, view.config.judge.budget_usd)
            self._offer()

    def _offer(self) -> None:
        """Offer to use the saved rubric in an active run that has a different version."""
        state, view = self.session.run.state, self._view
        other = view is not None and view.problem is None and view.source != state.rubric
        has_judge = state.spec is not None and bool(state.spec.config.judge.models)
        wanted = (
            state.active and has_judge and bool(state.rubric) and other and not self.editor.dirty
        )
        step = max(state.step, state.done + 1, state.closed + 1)
        self.editor.set_use(f"Use from step {step}" if wanted else "")

    def _use(self, source: str) -> None:
        self.session.command("use_rubric", rubric=source)

    async def _look(self) -> tuple[int, list[Agreement], list[Label], list[Disagreement]]:
        """Load number of groups, agreement, labels and disagreements of the run."""
        if not self._run or self.session.run.damaged:
            return 0, [], [], []
        client = self.session.client
        page = await client.groups(self._run, TrajectoryQuery(split="train", limit=GROUPS))
        rows, labels = await client.agreement(self._run), await client.labels(self._run)
        cases = []
        if rows and rows[0].groups:
            cases = await client.disagreements(self._run, rows[0].judge, rows[0].rubric)
        return len(page.items), rows, labels, cases

    def _show_trust(
        self, found: tuple[int, list[Agreement], list[Label], list[Disagreement]]
    ) -> None:
        self._groups, self._rows, self._labels, self._cases = found
        self.agreement.set_readable(self._actions.holds("readable"))
        words_of = self.editor.version_words
        canaries = self.session.run.state.canaries
        self.agreement.show_rows(self._rows, words_of, len(self._cases), canaries)
        self._comparison.show_rows(self._rows, words_of)
        self._sheet.show_cases(self._cases)
        done = len(graded(self._labels))
        self.grading.show_progress(done, self._rows[0] if self._rows else None, bool(self._groups))
        self._price_soon()

    # User actions

    def _show_people(self) -> None:
        run_id = self._run

        async def ask() -> Annotators:
            return await self.session.client.annotators(run_id)

        def show(found: Annotators) -> None:
            if run_id == self._run:
                self._people.show_annotators(found)
                self._people.open()

        if run_id:
            self.tasks.run("annotators", ask(), show)

    def _saved(self, path: str, view: RubricView) -> None:
        self._show_rubric(path, view)
        number = view.versions[-1].number
        self.session.notice.emit(f"Rubric {number} is saved. The next run uses this rubric.")

    def _choose(self, models: list[str], base_url: str | None) -> None:
        self._edit({"judge.models": models, "judge.base_url": base_url})

    def _edit(self, values: dict[str, Any]) -> None:
        self.session.edit(EditProject(values=values), lambda _: self._price_soon(), self._refused)

    def _refused(self, problem: Problem) -> None:
        self.session.problem_raised.emit(problem)
        self._show_judge()

    def _request(self) -> TryJudge:
        return TryJudge(source=self.editor.source, count=GROUPS)

    def _price_soon(self) -> None:
        if self.isVisible() and not self.tasks.busy("trial"):
            self._soon.start()

    def _price(self) -> None:
        view = self.session.project.view
        judge = view.config.judge if view and view.config else None
        if self.tasks.busy("trial") or judge is None:
            return
        if not judge.models and judge.local:
            self.choice.show_nothing(
                "A local judge cannot re-judge stored groups: it learns during runs."
            )
        elif not judge.models:
            self.choice.show_nothing("Choose a judge first.")
        elif not self._groups:
            self.choice.show_nothing("No run has stored groups yet.")
        elif not self.editor.source.strip():
            self.choice.show_nothing("Write a rubric first.")
        else:
            self.choice.show_measuring(self._groups)
            job = self._priced()
            self.tasks.run("price", job, self._show_price, self._no_price)

    async def _priced(self) -> TrialPrice:
        await self.session.lend_keys()
        return await self.session.client.price_trial(self._run, self._request())

    def _show_price(self, price: TrialPrice) -> None:
        self.choice.show_price(price)
        self.editor.show_sent(price.question)

    def _no_price(self, problem: Problem) -> None:
        self.choice.show_nothing(problem.message)

    def _try(self) -> None:
        self.tasks.cancel("price")
        self._soon.stop()
        self.choice.show_running(0, self._groups)
        self.tasks.run("trial", self._trying(), lambda _: self._ended(), self._trial_failed)

    async def _trying(self) -> None:
        found: list[Tried] = []
        version = self._view.version if self._view else ""
        left = self._before_words(version)
        right = "draft" if self.editor.dirty else self.editor.version_words(version)
        await self.session.lend_keys()
        trial = self.session.client.try_judge(self._run, self._request())
        async with aclosing(trial) as answers:
            async for tried in answers:
                found.append(tried)
                self.choice.show_running(len(found), self._groups)
                self.trial.show_tried(found, left, right)

    def _before_words(self, version: str) -> str:
        """Return the title of the scores before the change, left in the slope chart."""
        judged = [row for row in self._rows if row.rubric != version or self.editor.dirty]
        return self.editor.version_words(judged[0].rubric) if judged else "reward"

    def _ended(self) -> None:
        self.tasks.run("labels", self._look(), self._show_trust)

    def _trial_failed(self, problem: Problem) -> None:
        self.session.problem_raised.emit(problem)
        self._ended()

    def _cancel(self) -> None:
        self.tasks.cancel("trial")
        self._ended()

    def _suggest(self) -> None:
        async def ask() -> Suggestion:
            await self.session.lend_keys()
            return await self.session.client.suggest_rubric(self._run, self._request())

        def show(found: Suggestion) -> None:
            self._suggestion.show_suggestion(found, self.editor.source)
            self._suggestion.open()

        self.tasks.run("suggest", ask(), show)

    def grade_next(self) -> None:
        """Emit `grading_wanted` for the next group to grade blind, or notify that none is left."""

        async def find() -> Place | None:
            client, run_id = self.session.client, self.session.run.run_id
            labels = await client.labels(run_id)
            queue: list[Place] = []
            if self.session.settings.current.grade_by_queue:
                found = await client.review_queue(run_id, ReviewQuery(limit=GRADED_MOST))
                queue = [(one.split, one.step, one.group) for one in found.items]
            with_signal = TrajectoryQuery(split="train", signal=True, limit=GRADED_MOST)
            for query in (with_signal, TrajectoryQuery(split="train", limit=GRADED_MOST)):
                groups = (await client.groups(run_id, query)).items
                if place := next_group(groups, labels, random.Random(len(labels)), queue):
                    return place
            return None

        if self.session.run.run_id:
            self.tasks.run("next", find(), self._grade)

    def _grade(self, place: Place | None) -> None:
        if place is None:
            self.session.notice.emit(
                "No group is left to grade: each has been graded twice or has equal rewards."
            )
        else:
            self.grading_wanted.emit(*place)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW_PX
        if not self._placed and "judge" not in self.session.settings.current.splitters:
            left = round(self.width() * 0.41)
            self._splitter.setSizes([left, self.width() - left])
        self._placed = self.isVisible()
        if narrow == self._tab_line.isHidden():
            self._tab_line.setVisible(narrow)
            self._place_sides()

    def _place_sides(self) -> None:
        """Show rubric and judge beside each other, or the chosen one in a narrow window."""
        narrow, chosen = not self._tab_line.isHidden(), self._tabs.index()
        self._left.setMaximumWidth(WIDEST_PX if narrow else LEFT_PX[1])
        for place, side in enumerate((self._left, self._right)):
            side.setVisible(not narrow or place == chosen)
