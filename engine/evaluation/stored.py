"""Files of an evaluation's run folder: its scenarios, and its result so far."""

import json
from collections.abc import Sequence
from pathlib import Path

from engine.evaluation.results import Attempts, result_of
from engine.protocol.events.run import PolicyLoaded, TrajectoryRecorded
from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.runs import RunSpec, Scenario
from engine.runtime.files import replace_file
from engine.storage.run_db.reader import RunReader

SCENARIOS = "scenarios.jsonl"


def store_scenarios(folder: Path, scenarios: Sequence[Scenario]) -> None:
    """Write the scenarios into the run folder, so that a resumed evaluation uses the same ones."""
    lines = [json.dumps(one.model_dump()) + "\n" for one in scenarios]
    replace_file(folder / SCENARIOS, "".join(lines))


def stored_scenarios(folder: Path) -> list[Scenario]:
    """Return the scenarios that an evaluation stored in its run folder `folder` when it started.
    Raises StoreError if they cannot be read."""
    file = folder / SCENARIOS
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [Scenario.model_validate(json.loads(line)) for line in lines]
    except (OSError, ValueError) as error:
        raise StoreError.of(
            "evaluation.no_scenarios",
            "The scenarios of this evaluation cannot be read.",
            "Start a new evaluation.",
            where=str(file),
            detail=str(error),
        ) from error


def read_result(reader: RunReader, spec: RunSpec, folder: Path) -> EvaluationResult:
    """Return the result of an evaluation so far. Raises Refused if the run is no evaluation."""
    plan = spec.evaluation
    if plan is None:
        raise Refused.of(
            "run.no_evaluation",
            f"{spec.name} is not an evaluation.",
            "Start an evaluation: atelier eval PROJECT.",
        )
    rate = spec.config.evaluate.usd_per_hour
    spans = {}
    if rate is not None:
        for event in reader.events_of("trajectory.recorded"):
            if isinstance(event, TrajectoryRecorded):
                one = event.trajectory
                spans[one.id] = (event.at - one.duration_s, event.at)
    attempts = Attempts(reader.summaries_of("validation", 0), spans, rate)
    scenarios = stored_scenarios(folder)
    loaded = reader.events_of("policy.loaded")
    precisions = dict.fromkeys(e.dtype for e in loaded if isinstance(e, PolicyLoaded))
    words = " and ".join(precisions)
    return result_of(plan, scenarios, attempts, spec.config.judge.enabled, words)
