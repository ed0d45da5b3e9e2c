"""Resolution of typed names to checkpoints, and the errors for unknown or damaged ones."""

from pathlib import Path

import pytest

from engine.autorl.draft_folder import find_draft
from engine.evaluation.arena import find_arena
from engine.integrations.scripts.folders import known_run
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.evaluation import EvaluationPlan
from engine.server.services.runs.distillation import earlier_runs
from engine.storage.checkpoints.references import find_checkpoint, newest_best
from tests.engine.storage.kept_runs import make_run
from tests.engine_http.test_damaged import DAMAGES

PLAN = EvaluationPlan(contestants=[], attempts=1, scenarios=1, source="train", seed=0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"


@pytest.fixture
def run(project: Path) -> RunSpec:
    return make_run(project, "amber-kestrel", {2: 0.5, 4: 0.7, 6: 0.7, 8: None})


def test_find_checkpoint_accepts_run_step_id_best_and_newest(project: Path, run: RunSpec) -> None:
    names = ["amber-kestrel@2", "amber-kestrel", run.id, run.id[-5:].lower(), f"{run.id}@best"]
    names += ["amber-kestrel@newest", "amber-kestrel@0"]
    steps = [find_checkpoint(project, name).step for name in names]
    assert steps == [2, 8, 8, 8, 4, 8, 0]  # the earlier of equal scores is the best
    assert find_checkpoint(project, "amber-kestrel@0").checkpoint is None
    assert find_checkpoint(project, run.id).name == "amber-kestrel@8"


def test_damaged_checkpoint_is_skipped_or_rejected(project: Path, run: RunSpec) -> None:
    file = project / "runs" / run.id / "checkpoints/step-000008/adapter/adapter_model.safetensors"
    file.write_bytes(b"9")
    assert find_checkpoint(project, "amber-kestrel").step == 6
    with pytest.raises(
        ConfigError, match="amber-kestrel@8 are missing or were changed after they were written"
    ):
        find_checkpoint(project, "amber-kestrel@8")


def test_newest_best_is_the_best_checkpoint_of_the_newest_run(project: Path, run: RunSpec) -> None:
    assert newest_best(project / "nobody") is None
    best = newest_best(project)
    assert best is not None
    assert best.name == "amber-kestrel@4"
    make_run(project, "grey-owl", {})
    make_run(project, "blue-heron", {3: None, 5: None})
    best = newest_best(project)
    assert best is not None
    assert best.name == "blue-heron@5"


@pytest.mark.parametrize(
    "damage", ["spec is a list", "no spec", "spec is deep", "empty database", "half", "no header"]
)
def test_damaged_run_does_not_stop_a_search_through_the_others(
    project: Path, run: RunSpec, damage: str
) -> None:
    """Searches of a project's runs: by name, the best, the arena, the writer, a script's run,
    an earlier evaluation."""
    broken = make_run(project, "broken-newer", {9: 0.9})
    DAMAGES[damage](project / "runs" / broken.id)
    assert find_checkpoint(project, "amber-kestrel@4").step == 4
    best = newest_best(project)
    assert best is not None
    assert best.name == "amber-kestrel@4"
    assert find_arena(project) is None
    assert find_draft(project) is None
    assert known_run(project, "x") is None
    assert earlier_runs(project, PLAN) == []


def test_unresolved_name_raises_config_error(project: Path, run: RunSpec) -> None:
    with pytest.raises(ConfigError, match="This run has checkpoints of these steps: 2, 4, 6, 8"):
        find_checkpoint(project, "amber-kestrel@5")
    make_run(project, "blue-heron", {3: None})
    make_run(project, "grey-owl", {})
    make_run(project, "amber-kestrel", {1: None})
    for name, message in {
        "blue-heron@best": "the best one is unknown",
        "grey-owl": "has no checkpoint yet",
        "amber-kestrel@2": "2 runs are called amber-kestrel",
        "@2": "no trained run called ",
        "nobody": "Its trained runs are: ",
    }.items():
        with pytest.raises(ConfigError, match=message):
            find_checkpoint(project, name)
