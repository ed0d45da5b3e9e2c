"""Trajectories of a teacher as demonstrations; responses of earlier evaluations are reused."""

from collections.abc import Sequence
from pathlib import Path

from engine.evaluation.stored import stored_scenarios
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import ConfigError, StoreError
from engine.protocol.records.demonstrations import SelectDemonstrations
from engine.protocol.records.runs import RunSpec, Scenario
from engine.protocol.requests.evaluation import EvaluationPlan
from engine.storage.run_folder.run import Run, read_spec, run_reader, specs_of
from engine.training.sft.selection import demonstrate, words_of

STEP = 0


def earlier_runs(project: Path, plan: EvaluationPlan) -> list[Path]:
    """Folders of evaluations that collected demonstrations with the same teacher, attempts and seed
    as `plan`, newest first."""
    found = []
    for folder, spec in specs_of(project):
        other = spec.evaluation
        if other and other.demonstrate and _alike(other, plan):
            found.append(folder)
    return found


def _alike(one: EvaluationPlan, other: EvaluationPlan) -> bool:
    same = ("contestants", "variants", "attempts", "seed")
    return all(getattr(one, name) == getattr(other, name) for name in same)


def same_as(spec: RunSpec, scenarios: Sequence[Scenario], folders: Sequence[Path]) -> list[Path]:
    """Folders in `folders` whose run is equal to the new run `spec`: same settings and rubric, and
    the scenarios that would remain of `scenarios` without that run. An unfinished one can be
    resumed in place of the new run."""
    return [
        one
        for one in folders
        if _settings(read_spec(one)) == _settings(spec)
        and _kept(one) == missing(scenarios, [other for other in folders if other != one])
    ]


def _settings(spec: RunSpec) -> tuple[ProjectConfig, str]:
    """Settings and rubric that are fixed for the whole run."""
    return spec.config, spec.rubric


def _kept(folder: Path) -> list[Scenario] | None:
    """Scenarios stored with a run; None if unreadable, in which case the run cannot resume."""
    try:
        return stored_scenarios(folder)
    except StoreError:
        return None


def missing(scenarios: Sequence[Scenario], folders: Sequence[Path]) -> list[Scenario]:
    """Scenarios for which none of these run folders has a trajectory with a reward."""
    known = {one.model_dump_json() for folder in folders for one in _scored(folder)}
    return [one for one in scenarios if one.model_dump_json() not in known]


def _scored(folder: Path) -> list[Scenario]:
    with run_reader(folder) as reader:
        rows = reader.summaries_of("validation", STEP)
    good = {row.scenario_id for row in rows if row.reward is not None}
    return [scenario for scenario in stored_scenarios(folder) if scenario.id in good]


def check(plan: EvaluationPlan) -> None:
    """Raise ConfigError if a plan for collecting demonstrations has several models or any system
    prompt."""
    if len(plan.contestants) != 1 or plan.variants:
        raise ConfigError.of(
            "demonstrations.one_teacher",
            "Demonstrations can be collected from only one teacher at a time.",
            "Choose one model, and no system prompt other than the project's.",
        )


def store_earlier_demonstrations(folders: Sequence[Path], selection: SelectDemonstrations) -> None:
    """Write demonstrations from the runs in `folders`, from last to first. `selection` says which
    trajectories to use and where to write."""
    for folder in reversed(folders):
        demonstrate(folder, selection)


async def store_demonstrations(run: Run) -> None:
    """Write demonstrations from a finished evaluation to its project, if its plan asks for them."""
    plan = run.spec.evaluation
    if plan and plan.demonstrate:
        found = demonstrate(run.folder, plan.demonstrate)
        await run.log("info", "demonstrations", words_of(found))
