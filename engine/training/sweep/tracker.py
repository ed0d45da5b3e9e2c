"""Progress and result of one run of a sweep, read from its database."""

from pathlib import Path

from engine.protocol.base import BaseEvent
from engine.protocol.events.progress import KINDS, RunProgress
from engine.protocol.events.run import RunStarted
from engine.protocol.problems import Problem
from engine.protocol.records.sweeps import SweepRun, TrialState
from engine.storage.run_folder.run import DATABASE, read_spec, run_reader
from engine.training.sweep.results import curve_of

PRUNED = "Pruned by sweep"
"""Beginning of the reason with which successive halving stops a run."""
PAUSED = "Sweep {} was paused."
"""Reason with which a paused sweep stops its run; the name of the sweep is inserted."""
BY_HAND = "You stopped"
"""Beginning of the reason with which a person stops a run."""
PAGE = 1000
UNSCORED = Problem(
    code="sweep.unscored",
    message="No validation of this run could be scored.",
    hint="Open the run to see why its rollouts are unscored.",
)


class RunTracker:
    """Follows a run of a sweep: each `read` adds the events that were stored since the last one."""

    def __init__(self, folder: Path, run: SweepRun) -> None:
        self._folder, self._run = folder, run
        self._progress = RunProgress(run.run_id)
        self._seq = 0
        self._session: tuple[float, float] | None = None
        """Time of the first and the last event since the run began or resumed."""
        self._seconds = 0.0

    @property
    def reason(self) -> str:
        """Why the run stopped; empty if it did not."""
        return self._progress.reason

    def read(self) -> SweepRun:
        """Return the run as it is stored now; unchanged before it has a database. Raises StoreError
        if the folder cannot be read."""
        if not (self._folder / DATABASE).exists():
            return self._run
        spec = read_spec(self._folder)
        with run_reader(self._folder) as reader:
            while page := reader.events_after(self._seq, KINDS, PAGE):
                for event in page:
                    self._fold(event)
            cost_usd = reader.judge_cost()
        seconds = self._seconds + (self._session[1] - self._session[0] if self._session else 0.0)
        hourly = spec.config.evaluate.usd_per_hour or 0.0
        progress, steps = self._progress, spec.updates
        curve = curve_of(progress.validations, spec.config.judge.enabled, steps)
        run = self._run.model_copy(
            update={
                "name": spec.name,
                "step": min(progress.done, steps),
                "curve": curve,
                "seconds": round(seconds, 3),
                "cost_usd": cost_usd + hourly * seconds / 3600,
            }
        )
        state, problem = self._outcome(run)
        return run.model_copy(update={"state": state, "problem": problem})

    def _fold(self, event: BaseEvent) -> None:
        self._seq = event.seq or self._seq
        self._progress.fold_progress(event)  # type: ignore[arg-type]
        if self._session and isinstance(event, RunStarted):
            self._seconds += self._session[1] - self._session[0]
            self._session = None
        self._session = (self._session[0] if self._session else event.at, event.at)

    def _outcome(self, run: SweepRun) -> tuple[TrialState, Problem | None]:
        """State of the run, with the problem of a failed one; `running` if it can be resumed."""
        progress = self._progress
        if progress.status == "failed":
            return "failed", progress.problem
        if progress.status == "finished":
            return ("finished", None) if run.result else ("failed", UNSCORED)
        if progress.status == "stopped" and progress.reason.startswith(PRUNED):
            return "pruned", None
        return "running", None
