"""Resolution of typed names to contestants with their model weights."""

import os
from pathlib import Path

import pytest

from engine.evaluation.contestants import check_adapter, find_contestants
from engine.protocol.config.project import ModelConfig, ProjectConfig
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.evaluation import Contestant
from tests.engine.storage.kept_runs import make_run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"


@pytest.fixture
def run(project: Path) -> RunSpec:
    return make_run(project, "amber-kestrel", {2: 0.5, 4: 0.7, 6: 0.7, 8: None})


@pytest.fixture
def config(tiny_model: Path) -> ProjectConfig:
    model = ModelConfig(name=str(tiny_model), max_context=99, dtype="float32")
    return ProjectConfig(model=model)


def find_one(project: Path, config: ProjectConfig, name: str) -> Contestant:
    return find_contestants(project, config, [name])[0]


def test_checkpoint_contestant_has_the_shape_of_its_run(
    project: Path, config: ProjectConfig, run: RunSpec
) -> None:
    one = find_one(project, config, "amber-kestrel@4")
    assert (one.name, one.kind, one.run_id) == ("amber-kestrel@4", "checkpoint", run.id)
    assert one.adapter == f"runs/{run.id}/checkpoints/step-000004/adapter"
    assert one.shape is not None
    assert (one.shape.rank, one.shape.alpha, one.model_path) == (4, 8, "/m")
    assert (one.shape.max_context, one.shape.dtype) == (99, "float32")
    start = find_one(project, config, "amber-kestrel@0")
    assert (start.kind, start.adapter, start.model_path) == ("base", "", "/m")


def test_find_contestants_resolves_base_provider_and_default(
    project: Path, config: ProjectConfig, run: RunSpec, tiny_model: Path
) -> None:
    base, best = find_contestants(project, config, [])
    assert (base.name, base.kind, base.model_path) == ("base", "base", str(tiny_model))
    assert best.name == "amber-kestrel@4"
    remote = find_one(project, config, "openai/gpt-5.4")
    assert (remote.kind, remote.model, remote.shape) == ("provider", "openai/gpt-5.4", None)
    with pytest.raises(ConfigError, match="Train first"):
        find_contestants(project / "empty", config, [])


def test_equal_names_are_numbered(project: Path, config: ProjectConfig) -> None:
    names = ["base", "base", "openai/x"]
    names_found = [one.name for one in find_contestants(project, config, names)]
    assert names_found == ["base", "base #2", "openai/x"]


def test_missing_adapter_weights_are_rejected(
    project: Path, config: ProjectConfig, run: RunSpec
) -> None:
    one = find_one(project, config, "amber-kestrel@4")
    assert check_adapter(project, one) == project / one.adapter
    os.remove(project / one.adapter / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match="have changed since this evaluation began"):
        check_adapter(project, one)
