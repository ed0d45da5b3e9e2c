"""Run folders with checkpoints of known bytes."""

import asyncio
import time
from pathlib import Path

from engine.policy.base import Policy
from engine.protocol.config.project import ModelConfig, ProjectConfig
from engine.protocol.events.run import ValidationFinished
from engine.protocol.records.runs import Interval, RunSpec
from engine.runtime.ids import ulid
from engine.storage.checkpoints import checkpoint
from engine.storage.run_folder.run import Run, write_spec


class Weights(Policy):
    """Policy stub that saves an adapter of known bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def save(self, folder: Path) -> None:
        for name in ("adapter", "trainer"):
            (folder / name).mkdir()
        (folder / "adapter" / "adapter_model.safetensors").write_bytes(self.content)


def make_run(project: Path, name: str, means: dict[int, float | None]) -> RunSpec:
    """Create a trained run with a checkpoint at each step, validated where a mean is given."""
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
    return spec
