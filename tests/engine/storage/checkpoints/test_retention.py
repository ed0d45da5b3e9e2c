"""Checkpoint retention: reasons to keep one, deletion, pins."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.protocol.base import BaseEvent
from engine.protocol.config.project import ProjectConfig, TrainConfig
from engine.protocol.events.checkpoints import (
    CheckpointBranched,
    CheckpointDropped,
    CheckpointExported,
    CheckpointPinned,
)
from engine.protocol.events.run import ValidationFinished
from engine.protocol.events.sft import LossMeasured
from engine.protocol.problems import Refused
from engine.protocol.records.comparison import StepComparison
from engine.protocol.records.runs import Checkpoint, Interval, Parent, RunSpec
from engine.protocol.requests.runs import PinCheckpoint
from engine.storage.checkpoints.retention import (
    SPOKEN,
    CheckpointFacts,
    checkpoint_rows,
    delete,
    kept_by,
    pin,
    prune,
    reasons,
)
from engine.storage.run_folder.run import Run
from tests.engine.storage.kept_runs import make_run

EXPORTED = CheckpointExported(
    step=4, format="merged", dtype="bfloat16", path="/x", bytes=1, verdict="equal"
)


def interval(mean: float) -> Interval:
    return Interval(mean=mean, low=0, high=1, count=1)


def validation(step: int, mean: float | None) -> ValidationFinished:
    reward = None if mean is None else interval(mean)
    return ValidationFinished(step=step, reward=reward, scenarios={}, unscored=0, seconds=0)


def loss_event(step: int, loss: float) -> LossMeasured:
    return LossMeasured(step=step, loss=loss, tokens=1, examples=1, seconds=1)


def facts(*events: BaseEvent) -> CheckpointFacts:
    """Checkpoints of a run with these events."""

    def events_of(*kinds: str) -> list[BaseEvent]:
        assert kinds == SPOKEN
        return [event for event in events if event.kind in kinds]

    reader: Any = SimpleNamespace(events_of=events_of)
    return CheckpointFacts(reader)


def test_newest_best_and_marked_checkpoints_are_kept() -> None:
    steps = range(0, 100, 10)
    means = {0: 0.1, 10: 0.9, 20: 0.5, 30: 0.9, 40: 0.2}
    kept = reasons(steps, means, {50: {"pinned"}, 90: {"exported"}}, keep_last=2, keep_best=2)
    assert kept == {
        0: (),
        10: ("best",),
        20: (),
        30: ("best",),
        40: (),
        50: ("pinned",),
        60: (),
        70: (),
        80: ("newest",),
        90: ("exported", "newest"),
    }


def test_earlier_of_equal_checkpoints_is_the_best() -> None:
    kept = reasons([3, 2, 1], {1: 0.5, 2: 0.5, 3: 0.5}, {}, keep_last=1, keep_best=1)
    assert kept == {1: ("best",), 2: (), 3: ("newest",)}


def test_all_checkpoints_are_kept_without_a_limit() -> None:
    kept = reasons([1, 2], {}, {}, keep_last=None, keep_best=0)
    assert kept == {1: ("newest",), 2: ("newest",)}


def test_reasons_have_a_fixed_order() -> None:
    kept = reasons([1], {1: 0.5}, {1: {"pinned", "branched", "start"}}, keep_last=1, keep_best=1)
    assert kept == {1: ("best", "branched", "pinned", "start", "newest")}


def test_checkpoint_facts_are_derived_from_events() -> None:
    known_facts = facts(
        CheckpointPinned(step=1, pinned=True, note="first"),
        CheckpointPinned(step=2, pinned=True, note="second"),
        CheckpointPinned(step=1, pinned=False),
        CheckpointPinned(step=3, pinned=True, note="old"),
        CheckpointPinned(step=3, pinned=True, note="new"),
        CheckpointPinned(step=9, pinned=False),
        CheckpointBranched(step=2, child="a", name="amber"),
        CheckpointBranched(step=2, child="b", name="blue"),
        EXPORTED,
        validation(5, 0.5),
        validation(6, None),
        loss_event(7, 2.5),
    )
    assert known_facts.pinned == {2: "second", 3: "new"}
    assert known_facts.branches == {2: ["amber", "blue"]}
    assert known_facts.exported == {4}
    assert known_facts.validations == {5: interval(0.5)}
    assert known_facts.losses == {7: 2.5}


def compared(step: int, rates: dict[int, float]) -> ValidationFinished:
    """Validation of a judged run: win rates of all steps so far against step 0."""
    return validation(step, None).model_copy(
        update={
            "against": (StepComparison(opponent=0, scores={"s": 1.0}),),
            "win_rates": {number: interval(rate) for number, rate in rates.items()},
        }
    )


def test_merits_of_a_judged_run_are_its_newest_win_rates() -> None:
    known = facts(
        validation(0, 0.9),
        compared(5, {5: 0.7}),
        compared(10, {5: 0.6, 10: 0.4}),
        validation(15, 1),
    )
    assert known.merits == {0: 0.5, 5: 0.6, 10: 0.4}
    assert known.win_rates[5].mean == 0.6


def test_merits_are_rewards_or_negative_losses() -> None:
    assert facts(validation(5, 0.5), loss_event(7, 2.5)).merits == {5: 0.5}
    assert facts(loss_event(7, 2.5), loss_event(8, 1.5)).merits == {7: -2.5, 8: -1.5}


def checkpoints(*steps: int) -> list[Checkpoint]:
    return [Checkpoint(step=n, path=f"checkpoints/step-{n:06d}", bytes=1, at=0) for n in steps]


@pytest.mark.parametrize(
    ("parent", "start_step"),
    [(None, None), (Parent(name="p", step=2), 2), (Parent(name="p", step=2, weights_only=True), 0)],
)
def test_every_mark_keeps_a_checkpoint(parent: Parent | None, start_step: int | None) -> None:
    known_facts = facts(
        CheckpointPinned(step=3, pinned=True),
        CheckpointBranched(step=3, child="a", name="amber"),
        EXPORTED,
        validation(1, 0.5),
    )
    train = TrainConfig(keep_last=1, keep_best=1)
    spec = RunSpec(
        id="r", name="r", project="p", started_at=0, config=ProjectConfig(train=train),
        model_path="/m", parent=parent,
    )  # fmt: skip
    expected = {
        0: (),
        1: ("best",),
        2: (),
        3: ("branched", "pinned"),
        4: ("exported",),
        5: ("newest",),
    }
    if start_step is not None:
        expected[start_step] = ("start",)
    assert kept_by(known_facts, checkpoints(0, 1, 2, 3, 4, 5), spec) == expected


@pytest.fixture
def in_run(tmp_path: Path) -> Callable[[Callable[[Run], Coroutine[Any, Any, None]]], Run]:
    """Run an action in a run with three checkpoints that keeps the newest and the best one."""
    spec = make_run(tmp_path, "r", {1: 0.25, 2: 0.75, 3: None})
    train = TrainConfig(keep_last=1, keep_best=1)
    spec = spec.model_copy(update={"config": spec.config.model_copy(update={"train": train})})

    def work(act: Callable[[Run], Coroutine[Any, Any, None]]) -> Run:
        async def run_action() -> Run:
            run = Run(tmp_path / "runs" / spec.id, spec, lambda tick: None)
            try:
                await act(run)
            finally:
                run.close()
            return Run(run.folder, spec, lambda tick: None)

        return asyncio.run(run_action())

    return work


InRun = Callable[[Callable[[Run], Coroutine[Any, Any, None]]], Run]


def remaining(run: Run) -> tuple[list[int], list[str]]:
    """(steps on record, folders on disk)."""
    folders = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    return [one.step for one in run.reader.checkpoints()], folders


def test_prune_deletes_checkpoints_without_a_reason(in_run: InRun) -> None:
    run = in_run(prune)
    assert remaining(run) == ([2, 3], ["step-000002", "step-000003"])
    (event,) = run.reader.events_of("checkpoint.dropped")
    assert isinstance(event, CheckpointDropped)
    assert (event.step, event.by) == (1, "rule")
    run.close()


def test_delete_removes_the_checkpoint_and_records_the_person(in_run: InRun) -> None:
    run = in_run(lambda run: delete(run, 2))
    assert remaining(run) == ([1, 3], ["step-000001", "step-000003"])
    (event,) = run.reader.events_of("checkpoint.dropped")
    assert isinstance(event, CheckpointDropped)
    assert (event.step, event.by) == (2, "person")
    run.close()


def test_delete_succeeds_when_files_are_already_gone(in_run: InRun) -> None:
    async def act(run: Run) -> None:
        shutil.rmtree(run.folder / "checkpoints" / "step-000002")
        await delete(run, 2)

    run = in_run(act)
    assert remaining(run) == ([1, 3], ["step-000001", "step-000003"])
    run.close()


def test_newest_checkpoint_cannot_be_deleted(in_run: InRun) -> None:
    with pytest.raises(Refused, match="Step 3 is the newest checkpoint") as error:
        in_run(lambda run: delete(run, 3))
    assert error.value.problem.code == "checkpoint.newest"
    assert error.value.problem.hint == "Delete older checkpoints, or the whole run."


def test_unknown_checkpoint_is_refused(in_run: InRun) -> None:
    for act in (lambda run: delete(run, 7), lambda run: pin(run, 7, PinCheckpoint())):
        with pytest.raises(Refused, match="This run has no checkpoint of step 7") as error:
            in_run(act)
        assert error.value.problem.code == "checkpoint.unknown"


def test_pins_are_stored_with_their_note(in_run: InRun) -> None:
    async def act(run: Run) -> None:
        await pin(run, 1, PinCheckpoint(note="the good one"))
        await pin(run, 2, PinCheckpoint(pinned=False))

    run = in_run(act)
    pins = [e for e in run.reader.events_of(*SPOKEN) if isinstance(e, CheckpointPinned)]
    assert [(e.step, e.pinned, e.note) for e in pins] == [(1, True, "the good one"), (2, False, "")]
    run.close()


def test_checkpoint_rows_contain_state_reasons_and_scores(in_run: InRun) -> None:
    async def act(run: Run) -> None:
        await pin(run, 1, PinCheckpoint(note="kept"))
        await run.say(CheckpointBranched(step=1, child="a", name="amber"))
        await run.say(loss_event(3, 2.5))

    run = in_run(act)
    records = run.reader.checkpoints()
    (run.folder / records[1].path / "trainer" / "state.json").unlink()
    rows = checkpoint_rows(run.folder, run.reader, run.spec)
    assert [row.checkpoint for row in rows] == records
    assert [row.state for row in rows] == ["whole", "damaged", "whole"]
    assert [row.kept_by for row in rows] == [("branched", "pinned"), ("best",), ("newest",)]
    assert [row.note for row in rows] == ["kept", "", ""]
    assert [row.branches for row in rows] == [("amber",), (), ()]
    assert [row.validation for row in rows] == [interval(0.25), interval(0.75), None]
    assert [row.loss for row in rows] == [None, None, 2.5]
    run.close()


def test_missing_files_are_elsewhere_in_a_mirror_and_damaged_locally(
    in_run: InRun, tmp_path: Path
) -> None:
    async def nothing(run: Run) -> None:
        pass

    run = in_run(nothing)

    def states(folder: Path, *replica: bool) -> list[str]:
        return [row.state for row in checkpoint_rows(folder, run.reader, run.spec, *replica)]

    assert states(run.folder, True) == ["whole"] * 3
    assert states(tmp_path, True) == ["elsewhere"] * 3
    assert states(tmp_path) == ["damaged"] * 3
    run.close()
