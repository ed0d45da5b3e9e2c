"""Resuming a run: only from complete checkpoints; damaged ones are saved again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.policy.base import Policy
from engine.protocol.events.checkpoints import CheckpointDropped
from engine.protocol.problems import StoreError
from engine.protocol.records.runs import Parent, RunSpec
from engine.storage.checkpoints.checkpoint import folder_of, verify
from engine.storage.run_folder.run import Run, write_spec
from engine.training.lifecycle import restore, save_checkpoint
from tests.engine.storage.kept_runs import Weights, make_run


class RecordingPolicy(Weights):
    """Policy stub that records the folder it was restored from."""

    folder: Path | None = None

    async def restore(self, folder: Path) -> None:
        self.folder = folder


def run_with(
    folder: Path, spec: RunSpec, work: Callable[[Run, Policy], Awaitable[None]]
) -> RecordingPolicy:
    policy = RecordingPolicy(b"anew")

    async def run_work() -> None:
        run = Run(folder, spec, lambda tick: None)
        try:
            await work(run, policy)
        finally:
            run.close()

    asyncio.run(run_work())
    return policy


def damage(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder_of(folder, step) / "adapter" / "adapter_model.safetensors").write_bytes(b"X")


@pytest.mark.parametrize(("damaged", "resumed_step"), [([3], 2), ([2, 3], 1), ([1, 2, 3], None)])
def test_damaged_checkpoint_is_skipped_and_saved_again(
    tmp_path: Path, damaged: list[int], resumed_step: int | None
) -> None:
    spec = make_run(tmp_path, "one", {1: None, 2: None, 3: None})
    folder = tmp_path / "runs" / spec.id
    damage(folder, *damaged)

    async def work(run: Run, policy: Policy) -> None:
        checkpoint = await restore(run, policy)
        assert (checkpoint and checkpoint.step) == resumed_step
        stored_steps = [one.step for one in run.reader.checkpoints()]
        assert stored_steps == [step for step in (1, 2, 3) if step not in damaged]
        dropped = run.reader.events_of("checkpoint.dropped")
        assert [(e.step, e.by) for e in dropped if isinstance(e, CheckpointDropped)] == [
            (step, "damage") for step in damaged
        ]
        await save_checkpoint(run, policy, 3, {})
        assert run.reader.checkpoints()[-1].step == 3

    policy = run_with(folder, spec, work)
    assert policy.folder == (folder_of(folder, resumed_step) if resumed_step else None)
    saved = folder_of(folder, 3)
    assert verify(saved)
    assert (saved / "adapter" / "adapter_model.safetensors").read_bytes() == b"anew"


def test_damaged_checkpoint_does_not_count_towards_keep_last(tmp_path: Path) -> None:
    spec = make_run(tmp_path, "one", {1: None, 3: None})
    train = spec.config.train.model_copy(update={"keep_last": 1, "keep_best": 0})
    config = spec.config.model_copy(update={"train": train})
    spec = spec.model_copy(update={"config": config})
    folder = tmp_path / "runs" / spec.id
    damage(folder, 3)

    async def work(run: Run, policy: Policy) -> None:
        await restore(run, policy)
        await save_checkpoint(run, policy, 2, {})
        assert [one.step for one in run.reader.checkpoints()] == [2]

    run_with(folder, spec, work)


def test_branch_with_damaged_parent_weights_raises_store_error(tmp_path: Path) -> None:
    spec = make_run(tmp_path, "one", {0: None})
    parent = Parent(name="amber-kestrel", run_id="x", step=7, adapter="f00", weights_only=True)
    spec = spec.model_copy(update={"parent": parent})
    folder = tmp_path / "runs" / spec.id
    write_spec(folder, spec)
    damage(folder, 0)

    async def work(run: Run, policy: Policy) -> None:
        with pytest.raises(StoreError, match="of amber-kestrel, which are missing or damaged"):
            await restore(run, policy)
        assert [one.step for one in run.reader.checkpoints()] == [0], (
            "no checkpoint should be deleted"
        )

    assert run_with(folder, spec, work).folder is None
