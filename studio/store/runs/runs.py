"""All runs of the engine, and the folded state of the followed ones."""

from collections.abc import Iterable

from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from studio.store.runs.state import HELD_OUT, RunState, StoredEvent


class RunStore:
    """Run summaries by id, newest first, updated from the event streams."""

    def __init__(self) -> None:
        self._summaries: dict[str, RunSummary] = {}
        self._states: dict[str, RunState] = {}
        self._overlaid: dict[str, tuple[RunSummary, RunState, int, RunSummary]] = {}
        """Cache by run id: summary, state, the state's `seq`, and the summary updated from both."""

    def replace(self, summaries: Iterable[RunSummary]) -> None:
        """Replace all summaries with the engine's list."""
        self._summaries = {summary.id: summary for summary in summaries}
        self._overlaid.clear()
        for summary in self._summaries.values():
            self.state(summary.id).obey(summary)

    def put(self, summary: RunSummary) -> None:
        """Add or update one run."""
        if summary.id in self._summaries:
            self._summaries[summary.id] = summary
        else:
            self._summaries = {summary.id: summary, **self._summaries}
        self.state(summary.id).obey(summary)

    def fold(self, run_id: str, events: Iterable[StoredEvent]) -> RunState:
        """Apply events of one run, and return its state. Raises SequenceGap if events are
        missing."""
        return self.state(run_id).fold(events)

    def state(self, run_id: str) -> RunState:
        """Return a run's state, folded from its events; an empty one if it was never followed."""
        if run_id not in self._states:
            state = self._states[run_id] = RunState(run_id)
            if summary := self._summaries.get(run_id):
                state.obey(summary)
        return self._states[run_id]

    def known(self, run_id: str) -> bool:
        return run_id in self._summaries

    def forget(self, run_id: str) -> None:
        """Drop the folded events of a run; its summary stays."""
        self._states.pop(run_id, None)
        self._overlaid.pop(run_id, None)

    def summary(self, run_id: str) -> RunSummary | None:
        """Return the summary of a run, updated by its events; None if it is not listed."""
        summary = self._summaries.get(run_id)
        state = self._states.get(run_id)
        return self._with_state(summary, state) if summary and state and state.seq else summary

    def _with_state(self, summary: RunSummary, state: RunState) -> RunSummary:
        """Return `overlay` of both, cached since it is requested many times per event."""
        cached = self._overlaid.get(summary.id)
        if cached and cached[0] is summary and cached[1] is state and cached[2] == state.seq:
            return cached[3]
        made = overlay(summary, state)
        self._overlaid[summary.id] = (summary, state, state.seq, made)
        return made

    def all(self) -> list[RunSummary]:
        return [summary for run_id in self._summaries if (summary := self.summary(run_id))]

    def of(self, project_path: str) -> list[RunSummary]:
        """Return the runs of a project, newest first."""
        return [run for run in self.all() if run.project_path == project_path]

    def active(self) -> list[RunSummary]:
        """Return all runs that have a process, newest first; queued ones do not."""
        return [run for run in self.all() if run.state in ACTIVE_STATES]

    def active_here(self) -> list[RunSummary]:
        """Active runs of the engine on this machine."""
        return [run for run in self.active() if not run.host]


def overlay(summary: RunSummary, state: RunState) -> RunSummary:
    """Return the summary updated with the state folded from events, if that is newer.

    While the stream replays events that the summary includes, the summary takes precedence. Its
    status holds until a newer status event."""
    if state.seq <= summary.seq:
        return summary
    wins = summary.seq >= state.status_seq
    stopping = summary.state == "stopping" and state.active
    rewards = [record.metrics.get("reward/mean") for record in state.steps]
    validation = state.validations[-1].reward if state.validations else None
    return summary.model_copy(
        update={
            "state": summary.state if wins or stopping else state.status,
            "step": state.done,
            "steps": state.planned or summary.steps,
            "rewards": [] if summary.kind == "sft" else rewards,
            "losses": list(state.series[HELD_OUT].ys) if HELD_OUT in state.series else [],
            "validation": validation or summary.validation,
            "win_rate": state.win_rate or summary.win_rate,
            "win_rates": [rate.mean for _, rate in sorted(state.win_rates.items())]
            or summary.win_rates,
            "best": state.best[1] if state.best else summary.best,
            "best_step": state.best[0] if state.best else summary.best_step,
            "trajectories": max(summary.trajectories, state.trajectories),
            "unscored": max(summary.unscored, state.unscored),
            "changed_at": max(summary.changed_at, state.at),
            "trained_s": max(summary.trained_s, state.trained_s),
            "idle_s": max(summary.idle_s, state.idle_s),
            "problem": summary.problem if wins else state.problem,
        }
    )
