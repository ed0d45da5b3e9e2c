"""Calls about a run's judges and a person's labels."""

from collections.abc import AsyncGenerator

from engine.client.runs import STARTING_S
from engine.client.transport import Transport
from engine.protocol.records.judging import (
    Call,
    Disagreement,
    JudgeCheck,
    Suggestion,
    TrialPrice,
    Tried,
)
from engine.protocol.records.labels import Agreement, Annotators, Label, Labelled, LabelPreview
from engine.protocol.requests.review import ReviewQuery, ReviewQueue
from engine.protocol.requests.runs import TryJudge


class JudgingCalls(Transport):
    """Calls about judges, rubrics and labels."""

    async def call(self, run_id: str, key: str) -> Call:
        """Stored call of a judge, with request and response verbatim. `key` is its cache key, a
        hash of model, settings and prompt."""
        return await self._ask("GET", f"/runs/{run_id}/calls/{key}", Call)

    async def agreement(self, run_id: str) -> list[Agreement]:
        """Agreement of judges with labels: one row per judge and rubric, newest first."""
        return await self._list(f"/runs/{run_id}/agreement", Agreement)

    async def annotators(self, run_id: str) -> Annotators:
        """Annotators of a run, and the agreement of each pair of annotators."""
        return await self._ask("GET", f"/runs/{run_id}/annotators", Annotators)

    async def disagreements(self, run_id: str, judge: str, rubric: str) -> list[Disagreement]:
        """Pairs of trajectories that a judge with this version of its rubric ranks differently than
        the person's labels do, largest difference first."""
        params = {"judge": judge, "rubric": rubric}
        return await self._list(f"/runs/{run_id}/disagreements", Disagreement, params=params)

    async def review_queue(self, run_id: str, query: ReviewQuery) -> ReviewQueue:
        """Groups to label, most informative first."""
        return await self._ask("POST", f"/runs/{run_id}/review_queue", ReviewQueue, body=query)

    async def price_trial(self, run_id: str, request: TryJudge) -> TrialPrice:
        """Estimate number and cost of the requests of `try_judge`; sends none, but starts the judge
        process."""
        path, timeout = f"/runs/{run_id}/judge/price", STARTING_S
        return await self._ask("POST", path, TrialPrice, body=request, timeout=timeout)

    def try_judge(self, run_id: str, request: TryJudge) -> AsyncGenerator[Tried, None]:
        """Score stored groups of a run with another rubric or judge, without changing rewards.
        Yields each group when it is judged; closing the iterator cancels the rest."""
        return self._records(f"/runs/{run_id}/judge", request, Tried)

    async def check_judges(self, project: str) -> JudgeCheck:
        """Send each judge of a project one real, paid request. The first request installs the
        judge's environment if it is missing."""
        path, params = "/judges/check", {"path": project}
        return await self._ask("POST", path, JudgeCheck, params=params, timeout=STARTING_S)

    async def suggest_rubric(self, run_id: str, request: TryJudge) -> Suggestion:
        """Ask the judge for a rubric under which it would agree with the person's labels. Without
        disagreements it is not asked, and the suggestion is empty."""
        path, timeout = f"/runs/{run_id}/judge/suggest", STARTING_S
        return await self._ask("POST", path, Suggestion, body=request, timeout=timeout)

    async def labels(self, run_id: str) -> list[Label]:
        """Labels of a run, oldest first, including undone ones."""
        return await self._list(f"/runs/{run_id}/labels", Label)

    async def preview_label(self, run_id: str, label: Label) -> LabelPreview:
        """Rewards and advantages that `label` would change in run `run_id`; stores nothing."""
        path = f"/runs/{run_id}/labels/preview"
        return await self._ask("POST", path, LabelPreview, body=label.for_run(run_id))

    async def add_label(self, run_id: str, label: Label) -> Labelled:
        """Store a label. Raises Refused if it names another run."""
        path = f"/runs/{run_id}/labels"
        return await self._ask("POST", path, Labelled, body=label.for_run(run_id))

    async def undo_label(self, run_id: str) -> Labelled:
        return await self._ask("POST", f"/runs/{run_id}/labels/undo", Labelled)

    async def redo_label(self, run_id: str) -> Labelled:
        return await self._ask("POST", f"/runs/{run_id}/labels/redo", Labelled)
