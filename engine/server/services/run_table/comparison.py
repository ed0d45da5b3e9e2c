"""Comparison of runs, read from their folders: validations by scenario, and settings."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.evaluation.run_comparison import (
    Candidate,
    compared,
    measure_of,
    scenario_rewards,
    scenario_table,
    scenario_wins,
)
from engine.protocol.config.flat import flat_values
from engine.protocol.events.progress import KINDS, RunProgress
from engine.protocol.problems import Refused
from engine.protocol.records.run_table import RunComparison, SettingDifference
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.run_table import CompareRuns
from engine.storage.run_folder.run import read_spec, run_reader

MOST_SCENARIOS = 5000
"""Maximum number of scenarios in the answer; those on which the runs differ least are left out."""


def compare_runs(folders: Sequence[Path], request: CompareRuns) -> RunComparison:
    """Compare the runs in `folders` with the first one, each at the validation that `request.at`
    selects. Raises Refused if a run is named twice, StoreError if one is damaged."""
    if len(set(folders)) < len(folders):
        raise Refused.of("runs.twice", "The same run was given twice.", "Choose different runs.")
    specs = [read_spec(folder) for folder in folders]
    progress = [_progress(folder, spec) for folder, spec in zip(folders, specs, strict=True)]
    candidates = [
        Candidate(spec.id, spec.name, run.validations)
        for spec, run in zip(specs, progress, strict=True)
    ]
    measure = measure_of(candidates)
    steps = [candidate.chosen(measure, request.at) for candidate in candidates]
    titles: dict[str, str] = {}
    scores = []
    for folder, candidate, step in zip(folders, candidates, steps, strict=True):
        found: dict[str, float | None] = {}
        if step is not None:
            with run_reader(folder) as reader:
                rows = reader.summaries_of("validation", step)
            titles |= {row.scenario_id: row.title for row in rows if row.title}
            wins = measure == "win_rate"
            found = scenario_wins(candidate, step) if wins else scenario_rewards(rows)
        scores.append(found)
    values = [_settings(spec, run.device) for spec, run in zip(specs, progress, strict=True)]
    differences = _differences(values)
    return RunComparison(
        measure=measure,
        at=request.at,
        runs=compared(candidates, steps, scores, measure),
        scenarios=scenario_table(scores, titles)[:MOST_SCENARIOS],
        settings=differences,
        equal=len({key for each in values for key in each}) - len(differences),
    )


def _progress(folder: Path, spec: RunSpec) -> RunProgress:
    with run_reader(folder) as reader:
        return RunProgress(spec.id, planned=spec.updates).fold_all(reader.events_of(*KINDS))


def _settings(spec: RunSpec, device: str) -> dict[str, Any]:
    config = spec.config.model_dump(mode="json", exclude={"name", "description"})
    found = dict(flat_values(config)) | dict(flat_values({"versions": spec.versions}))
    if spec.rubric:
        digest = hashlib.sha256(spec.rubric.encode()).hexdigest()[:8]
        found["rubric"] = f"{len(spec.rubric.splitlines())} lines, {digest}"
    if spec.parent:
        found["parent"] = f"{spec.parent.name} at step {spec.parent.step}"
    return found | ({"device": device} if device else {})


def _differences(values: Sequence[dict[str, Any]]) -> list[SettingDifference]:
    """Settings that are not equal in all runs, in the order of the settings."""
    keys = dict.fromkeys(key for each in values for key in each)
    rows = {key: [each.get(key) for each in values] for key in keys}
    return [
        SettingDifference(key=key, values=row)
        for key, row in rows.items()
        if any(value != row[0] for value in row[1:])
    ]
