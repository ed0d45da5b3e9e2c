"""Judge: who compares the attempts, by which rubric, and what it has cost so far."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from studio import figures
from studio.actions import Actions
from studio.pages.page import Page
from studio.session import Session
from studio.widgets.empty_page import EmptyPage, Preparation

OFF = (
    "No judge yet",
    "An LLM judge compares the attempts of each group by a rubric in plain words. Name one in "
    "project.toml, [judge] models, write what is good into rubric.md, and switch it on in Setup.",
)
ON = (
    "The judge is on",
    "It compares the attempts of each group as soon as they have ended. Whatever it does not score "
    "validly stays unscored, with the reason.",
)


class JudgePage(Page):
    """The judge of this project and what it has done in the run that is shown."""

    def __init__(self, session: Session, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(session, parent)
        self._empty = EmptyPage(*OFF, drawing="rows")
        self._empty.set_actions("Open Setup", icon="sliders-horizontal")
        self._empty.action_requested.connect(lambda: actions.trigger("go.setup"))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._empty)
        session.project_changed.connect(self._refresh)
        session.run.changed.connect(self._refresh)

    def enter(self) -> None:
        self._refresh()

    def _refresh(self) -> None:
        view = self.session.project.view
        if not self.isVisible() or view is None or view.config is None:
            return
        judge, state = view.config.judge, self.session.run.state
        self._empty.set_words(*(ON if judge.enabled else OFF))
        names = [n.removeprefix("reward/part/") for n in self.session.run.names("reward/part/")]
        said = ", ".join(names) if names else "returned by the agent or by rewards.py"
        budget = f" of ${judge.budget_usd:.2f}" if judge.budget_usd is not None else ""
        calls = figures.plural(state.judge_calls, "question")
        failed = f", {state.judge_failed} without an answer" if state.judge_failed else ""
        self._empty.set_preparations(
            [
                Preparation("parts", "Reward parts", said, done=True),
                Preparation(
                    "judge",
                    "Judges",
                    ", ".join(judge.models) or "none is named",
                    done=bool(judge.models),
                ),
                Preparation("rubric", "Rubric", f"{judge.rubric}, as it is when a run starts"),
                Preparation(
                    "spent",
                    "This run",
                    f"{calls}{failed}, ${state.judge_usd:.4f}{budget}",
                    done=bool(state.judge_calls),
                ),
            ]
        )
