"""All runs the engine knows, and the folded state of those that are followed."""

from collections.abc import Iterable

from engine.protocol.records.runs import ACTIVE_STATES, RunSummary
from studio.store.runs.state import HELD_OUT, RunState, Told


class RunStore:
    """Summaries by run id, newest first, overlaid with what the streams say since."""

    def __init__(self) -> None:
        self._summaries: dict[str, RunSummary] = {}
        self._states: dict[str, RunState] = {}
        self._overlaid: dict[str, tuple[RunSummary, RunState, int, RunSummary]] = {}
        """By run: its summary, its state, the `seq` of that, and what came of both."""

    def replace(self, summaries: Iterable[RunSummary]) -> None:
        """The engine's list of runs, as just asked."""
        self._summaries = {summary.id: summary for summary in summaries}
        self._overlaid.clear()
        for summary in self._summaries.values():
            self.state(summary.id).obey(summary)

    def put(self, summary: RunSummary) -> None:
        """One run, as a command's answer tells it."""
        if summary.id in self._summaries:
            self._summaries[summary.id] = summary
        else:
            self._summaries = {summary.id: summary, **self._summaries}
        self.state(summary.id).obey(summary)

    def fold(self, run_id: str, events: Iterable[Told]) -> RunState:
        """Take events of one run in; raises SequenceGap where some are missing."""
        return self.state(run_id).fold(events)

    def state(self, run_id: str) -> RunState:
        """The folded state; empty for a run that nobody has followed yet."""
        if run_id not in self._states:
            state = self._states[run_id] = RunState(run_id)
            if summary := self._summaries.get(run_id):
                state.obey(summary)
        return self._states[run_id]

    def known(self, run_id: str) -> bool:
        return run_id in self._summaries

    def forget(self, run_id: str) -> None:
        self._states.pop(run_id, None)
        self._overlaid.pop(run_id, None)

    def summary(self, run_id: str) -> RunSummary | None:
        summary = self._summaries.get(run_id)
        state = self._states.get(run_id)
        return self._with_state(summary, state) if summary and state and state.seq else summary

    def _with_state(self, summary: RunSummary, state: RunState) -> RunSummary:
        """It is asked for many times for each event: the last answer holds until the next one."""
        known = self._overlaid.get(summary.id)
        if known and known[0] is summary and known[1] is state and known[2] == state.seq:
            return known[3]
        made = overlay(summary, state)
        self._overlaid[summary.id] = (summary, state, state.seq, made)
        return made

    def all(self) -> list[RunSummary]:
        return [summary for run_id in self._summaries if (summary := self.summary(run_id))]

    def of(self, project_path: str) -> list[RunSummary]:
        return [run for run in self.all() if run.project_path == project_path]

    def active(self) -> list[RunSummary]:
        return [run for run in self.all() if run.state in ACTIVE_STATES]

    def active_here(self) -> list[RunSummary]:
        """Active runs of the engine of this machine."""
        return [run for run in self.active() if not run.host]


def overlay(summary: RunSummary, state: RunState) -> RunSummary:
    """The summary with what the stream has brought since the engine read it.

    The engine's row holds while the stream replays what the row accounts for already; its state
    holds until an event that is newer than it.
    """
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
            "trajectories": max(summary.trajectories, state.trajectories),
            "unscored": max(summary.unscored, state.unscored),
            "changed_at": max(summary.changed_at, state.at),
            "problem": summary.problem if wins else state.problem,
        }
    )
