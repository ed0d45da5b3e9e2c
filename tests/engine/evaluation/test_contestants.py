"""Names as they are typed → contestants; what is not there, or not whole, is said."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from engine import checkpoint
from engine.evaluation.contestants import Roster, check_adapter
from engine.identity import ulid
from engine.policy.base import Policy
from engine.protocol.config import ModelConfig, ProjectConfig
from engine.protocol.events import ValidationFinished
from engine.protocol.problems import ConfigError
from engine.protocol.records import Interval, RunSpec, RunSummary
from engine.run import Run, write_spec


class Weights(Policy):
    """Saves an adapter of known bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def save(self, folder: Path) -> None:
        for name in ("adapter", "trainer"):
            (folder / name).mkdir()
        (folder / "adapter" / "adapter_model.safetensors").write_bytes(self.content)


def make_run(project: Path, name: str, means: dict[int, float | None]) -> RunSummary:
    """A trained run with a checkpoint at each step, and its validation where there was one."""
    config = ProjectConfig(model=ModelConfig(name="other", rank=4, alpha=8))
    spec = RunSpec(
        id=ulid(), name=name, project="p", started_at=time.time(), config=config, model_path="/m"
    )
    folder = project / "runs" / spec.id
    folder.mkdir(parents=True)
    write_spec(folder, spec)

    async def fill() -> None:
        run = Run(folder, spec, lambda tick: None)
        for step, mean in means.items():
            saved = await checkpoint.save(folder, step, Weights(b"%d" % step), {}, {})
            await run.writer.add_checkpoint(saved)
            if mean is not None:
                reward = Interval(mean=mean, low=0, high=1, count=1)
                await run.say(
                    ValidationFinished(
                        step=step, reward=reward, scenarios={}, unscored=0, seconds=0
                    )
                )
        run.close()

    asyncio.run(fill())
    return RunSummary(
        id=spec.id, name=name, kind="train", project="p", project_path=str(project),
        path=str(folder), state="finished", step=0, steps=0, started_at=0, changed_at=0,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"


@pytest.fixture
def run(project: Path) -> RunSummary:
    return make_run(project, "amber-kestrel", {2: 0.5, 4: 0.7, 6: 0.7, 8: None})


@pytest.fixture
def roster(project: Path, run: RunSummary, tiny_model: Path) -> Roster:
    model = ModelConfig(name=str(tiny_model), max_context=99, dtype="float32")
    return Roster(project, ProjectConfig(model=model), [run])


def test_names_of_checkpoints(roster: Roster, run: RunSummary) -> None:
    names = ["amber-kestrel@2", "amber-kestrel", run.id, run.id[-5:].lower(), f"{run.id}@best"]
    steps = [one.step for one in roster.contestants(names)]
    assert steps == [2, 8, 8, 8, 4]  # of equal ones the earlier is the best
    found = roster.find("amber-kestrel@4")
    assert (found.name, found.kind, found.run_id) == ("amber-kestrel@4", "checkpoint", run.id)
    assert found.adapter == f"runs/{run.id}/checkpoints/step-000004/adapter"
    assert found.shape is not None
    assert (found.shape.rank, found.shape.alpha, found.model_path) == (4, 8, "/m")
    assert (found.shape.max_context, found.shape.dtype) == (99, "float32")


def test_base_provider_and_the_default(roster: Roster, tiny_model: Path) -> None:
    base, best = roster.contestants([])
    assert (base.name, base.kind, base.model_path) == ("base", "base", str(tiny_model))
    assert best.name == "amber-kestrel@4"
    remote = roster.find("openai/gpt-5.4")
    assert (remote.kind, remote.model, remote.shape) == ("provider", "openai/gpt-5.4", None)


def test_equal_names_are_numbered(roster: Roster) -> None:
    assert [one.name for one in roster.contestants(["base", "base", "openai/x"])] == [
        "base", "base #2", "openai/x",
    ]  # fmt: skip


def test_a_damaged_checkpoint_is_passed_over_or_refused(roster: Roster, run: RunSummary) -> None:
    file = Path(run.path) / "checkpoints/step-000008/adapter/adapter_model.safetensors"
    file.write_bytes(b"9")
    assert roster.find("amber-kestrel").step == 6
    with pytest.raises(ConfigError, match="step 8 of amber-kestrel is damaged"):
        roster.find("amber-kestrel@8")


def test_other_weights_in_its_place_are_refused(roster: Roster, project: Path) -> None:
    found = roster.find("amber-kestrel@4")
    assert check_adapter(project, found) == project / found.adapter
    file = project / found.adapter / "adapter_model.safetensors"
    os.remove(file)
    with pytest.raises(ConfigError, match="not those that this evaluation began with"):
        check_adapter(project, found)


def test_what_is_not_there_is_said(project: Path, roster: Roster, run: RunSummary) -> None:
    with pytest.raises(ConfigError, match="It has those of step 2, 4, 6, 8"):
        roster.find("amber-kestrel@5")
    untested = make_run(project, "blue-heron", {3: None})
    empty = make_run(project, "grey-owl", {})
    twin = make_run(project, "amber-kestrel", {1: None})
    config = ProjectConfig()
    several = Roster(project, config, [twin, empty, untested, run])
    for name, said in {
        "blue-heron@best": "nobody knows which is the best",
        "grey-owl": "has no checkpoint yet",
        "amber-kestrel@2": "2 runs are called amber-kestrel",
        "@2": "There is no model ``",
    }.items():
        with pytest.raises(ConfigError, match=said):
            several.find(name)
    with pytest.raises(ConfigError, match="Train first"):
        Roster(project, config, [empty])._newest_best()
