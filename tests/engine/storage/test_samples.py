"""Sample projects and the projects created from them."""

import json
from pathlib import Path

import pytest

from engine.protocol.problems import ConfigError
from engine.storage.project import load_config, read_scenarios
from engine.storage.samples import create_project, samples


@pytest.mark.parametrize("name", [*(s.name for s in samples()), None])
def test_every_sample_is_a_valid_project(tmp_path: Path, name: str | None) -> None:
    folder = tmp_path / "copy"
    create_project(folder, name)
    config = load_config(folder)
    assert (folder / config.agent.file).is_file()
    for split in (config.scenarios.train, config.scenarios.validation):
        assert split is not None
        scenarios, problems = read_scenarios(folder / split)
        assert scenarios
        assert problems == []
    assert not (folder / "sample.toml").exists()
    with pytest.raises(ConfigError, match="not empty"):
        create_project(folder, name)


def test_train_and_validation_scenarios_of_a_sample_are_disjoint(tmp_path: Path) -> None:
    for sample in samples():
        create_project(tmp_path / sample.name, sample.name)
        config = load_config(tmp_path / sample.name)
        splits = [config.scenarios.train, config.scenarios.validation or ""]
        train, held_out = (
            {json.dumps(s.data) for s in read_scenarios(tmp_path / sample.name / name)[0]}
            for name in splits
        )
        assert not train & held_out


def test_files_shared_by_samples_are_copied(tmp_path: Path) -> None:
    for sample in samples():
        create_project(tmp_path / sample.name, sample.name)
        for shared_file in sample.files:
            assert (tmp_path / sample.name / Path(shared_file).name).exists()
    assert not list(tmp_path.glob("*/*.db"))
