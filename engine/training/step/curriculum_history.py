"""History of a curriculum: groups of earlier steps, read from the store.

Rewards are those at the time when a group was complete (`group.scored`). Labels change updates, but
not the choice of scenarios, so resumed, branched and replayed runs choose the same ones.
"""

from collections.abc import Sequence

from engine.protocol.events.run import GroupScored
from engine.protocol.records.runs import Scenario
from engine.storage.run_folder.run import Run
from engine.training.step.curriculum import Visit, scenario_weights
from engine.training.step.scenario_sampling import Choice

PAGE = 5000


class CurriculumHistory:
    """Cache of scored groups; each step reads only new events."""

    def __init__(self, run: Run, scenarios: Sequence[Scenario]) -> None:
        self._run, self._scenarios = run, scenarios
        self._last = 0
        self._visits: dict[tuple[int, int], Visit] = {}

    def choice(self, step: int) -> Choice:
        """Return the inputs for choosing the scenarios of a step. Their weights depend on groups up
        to step − 1 − `train.staleness`; a uniform curriculum has no weights."""
        train = self._run.config.train
        return Choice(self._scenarios, train.seed, step, self._weights(step))

    def _weights(self, step: int) -> list[float] | None:
        train = self._run.config.train
        if train.curriculum == "uniform":
            return None
        self._read()
        newest = step - 1 - train.staleness
        seen = [visit for _, visit in sorted(self._visits.items()) if visit.step <= newest]
        done = (step - 1) / train.steps
        return scenario_weights(
            train.curriculum, self._scenarios, seen, done, train.curriculum_floor
        )

    def _read(self) -> None:
        while events := self._run.reader.events_after(self._last, ("group.scored",), PAGE):
            for event in events:
                assert isinstance(event, GroupScored)
                assert event.seq is not None
                self._last = event.seq
                group = event.group
                if group.split == "train":
                    scored = tuple(r for r in group.rewards if r is not None)
                    place = (group.step, group.group)
                    self._visits[place] = Visit(group.step, group.scenario_id, scored)
