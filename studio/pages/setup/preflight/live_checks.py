"""Live checks: one rollout of the agent and one judge call, before training."""

import time
from contextlib import aclosing

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from engine.protocol.problems import Problem
from engine.protocol.records.judging import JudgeCheck
from engine.protocol.records.runs import ProjectView, Trajectory
from engine.protocol.requests.arena import AskArena
from studio.pages.setup.preflight.check_result_sheet import CheckedSheet
from studio.pages.trust_bar import confirmation_of
from studio.runtime.tasks import TaskScope
from studio.services.session import Session
from studio.store.projects import check_results
from studio.store.projects.check_results import Outcome
from studio.widgets.cards.check_row import CheckRow
from studio.widgets.layouts import vbox

SECOND_MS = 1000
MOST_SEED = 2**31


class ProjectChecks(QWidget):
    """Live checks: `show_project(view)`; results expire when project files change."""

    def __init__(
        self, session: Session, tasks: TaskScope, host: QWidget, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._tasks = session, tasks
        self._view: ProjectView | None = None
        self._attempt: Trajectory | None = None
        self._answers: JudgeCheck | None = None
        self._started_at, self._title = 0.0, ""
        self._tested: dict[CheckRow, dict[str, str]] = {}
        """File → fingerprint, at the time of each check."""
        self._outdated: set[CheckRow] = set()
        """Checks whose files changed while they were running."""
        self._sheet = CheckedSheet(host)
        self.agent = CheckRow("Agent", "Runs the agent on the first scenario.")
        self.judge = CheckRow("Judge", "Sends one paid comparison to each judge.")
        self._every_second = QTimer(self)
        self._every_second.setInterval(SECOND_MS)
        self._every_second.timeout.connect(self._tell_time)
        vbox(self.agent, self.judge, parent=self, spacing=2)
        self.agent.wanted.connect(self._test_agent)
        self.agent.stop_wanted.connect(self._stop_agent)
        self.agent.look_wanted.connect(self._show_attempt)
        self.judge.wanted.connect(self._test_judge)
        self.judge.stop_wanted.connect(self._stop_judge)
        self.judge.look_wanted.connect(self._show_answers)
        self._reset()

    def show_project(self, view: ProjectView | None) -> None:
        """Set the project to test (None: no project). Another project resets results and cancels
        tests; changed files mark results as outdated."""
        before, self._view = self._view, view
        if view is None or before is None or view.path != before.path:
            for name in ("test agent", "test judge"):
                self._tasks.cancel(name)
            self._reset()
        else:
            self._outdate(view.files)
        config = view.config if view is not None else None
        self.agent.setVisible(config is not None and config.agent.source != "outside")
        has_judge = config is not None and config.judge.enabled and bool(config.judge.models)
        self.judge.setVisible(has_judge)
        self.setVisible(config is not None)

    def _reset(self) -> None:
        self._attempt = self._answers = None
        self._tested.clear()
        self._outdated.clear()
        self._every_second.stop()
        for row, outcome in (
            (self.agent, check_results.AGENT_OPEN),
            (self.judge, check_results.JUDGE_OPEN),
        ):
            row.forget()
            row.set_found(*outcome)

    def _outdate(self, files: dict[str, str]) -> None:
        """Mark checks as outdated whose fingerprints differ from `files` (file → fingerprint)."""
        for row, found in ((self.agent, self._attempt), (self.judge, self._answers)):
            if self._tested.get(row, files) == files:
                continue
            if row.running:
                self._outdated.add(row)
                continue
            del self._tested[row]
            self._show(row, check_results.CHANGED, found is not None)

    def _begin(self, row: CheckRow) -> None:
        """Reset the state of a check before it starts again."""
        self._tested.pop(row, None)
        self._outdated.discard(row)

    def _ended(self, row: CheckRow, outcome: Outcome, can_look: bool) -> None:
        """Show the result, or mark it as outdated if files have changed."""
        if row in self._outdated:
            self._begin(row)
            outcome = check_results.CHANGED
        self._show(row, outcome, can_look)

    # Agent

    def _test_agent(self) -> None:
        if self._view is None:
            return
        self._started_at, self._title = time.monotonic(), ""
        self._attempt = None
        self._begin(self.agent)
        self._tell_time()
        self._every_second.start()
        job = self._try_agent(self._view)
        self._tasks.run("test agent", job, self._agent_tested, self._agent_failed)

    async def _try_agent(self, view: ProjectView) -> Trajectory:
        client = self._session.client
        self._tested[self.agent] = (await client.project_files(view.path)).files
        page = await client.scenarios(view.path, "train", limit=1)
        if not page.items:
            raise check_results.no_scenario()
        first = page.items[0]
        self._title = first.title
        await self._session.lend_keys()
        seed = time.time_ns() % MOST_SEED
        request = AskArena(project=view.path, models=["base"], scenario=first.id, seed=seed)
        made: Trajectory | None = None
        async with aclosing(client.ask_arena(request)) as ticks:
            async for tick in ticks:
                made = tick.trajectory or made
        if made is None:
            raise check_results.nothing_made()
        return made

    def _agent_tested(self, attempt: Trajectory) -> None:
        self._every_second.stop()
        self._attempt = attempt
        config = self._view.config if self._view is not None else None
        judged = config is not None and config.judge.enabled
        self._ended(self.agent, check_results.agent_outcome(attempt, judged), True)

    def _agent_failed(self, problem: Problem) -> None:
        self._every_second.stop()
        self._refused(self.agent, problem)

    def _stop_agent(self) -> None:
        self._tasks.cancel("test agent")
        self._every_second.stop()
        self._show(self.agent, check_results.AGENT_OPEN)

    def _tell_time(self) -> None:
        seconds = time.monotonic() - self._started_at
        words = check_results.running_words(self._title, seconds)
        self._show(self.agent, Outcome("running", words))

    # Judge

    def _test_judge(self) -> None:
        if self._view is None:
            return
        self._answers = None
        self._begin(self.judge)
        self._show(self.judge, Outcome("running", "Waiting for responses…"))
        job = self._try_judge(self._view.path)
        self._tasks.run("test judge", job, self._judge_tested, self._judge_failed)

    async def _try_judge(self, path: str) -> JudgeCheck:
        client = self._session.client
        self._tested[self.judge] = (await client.project_files(path)).files
        await self._session.lend_keys()
        return await client.check_judges(path)

    def _judge_tested(self, found: JudgeCheck) -> None:
        self._answers = found
        self._ended(self.judge, check_results.judge_outcome(found), True)

    def _judge_failed(self, problem: Problem) -> None:
        self._refused(self.judge, problem)

    def _stop_judge(self) -> None:
        self._tasks.cancel("test judge")
        self._show(self.judge, check_results.JUDGE_OPEN)

    # Both

    def _refused(self, row: CheckRow, problem: Problem) -> None:
        self._ended(row, check_results.failed(problem), False)
        if confirmation_of(problem) is not None:
            self._session.problem_raised.emit(problem)

    def _show(self, row: CheckRow, outcome: Outcome, can_look: bool = False) -> None:
        row.set_found(*outcome, can_look=can_look)

    def _show_attempt(self) -> None:
        if self._attempt is not None:
            self._sheet.show_attempt(self._attempt)

    def _show_answers(self) -> None:
        if self._answers is not None:
            self._sheet.show_answers(self._answers)
