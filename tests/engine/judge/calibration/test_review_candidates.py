"""Review queue of a stored run: labelled and identical groups are left out, verdicts are read."""

import asyncio
from pathlib import Path

from engine.judge.calibration.review_candidates import review_queue
from engine.protocol.records.conversations import Message
from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label, Word
from engine.protocol.records.runs import GroupSummary, Trajectory
from engine.protocol.requests.review import ReviewQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter

WEIGHTS = {"format": 0.5}


def rollouts(group: int, texts: list[str]) -> list[Trajectory]:
    return [
        Trajectory(
            id=f"t-{group}-{index}", split="train", step=1, group=group, index=index,
            scenario_id=f"s{group}", title=f"Scenario {group}", reward=index / 2, turns=1,
            parts={"rules": index / 2, "format": 1.0, "ruler": 1 - index / 2}, sampled_tokens=4,
            messages=[Message(role="assistant", content=text)],
        )
        for index, text in enumerate(texts)
    ]  # fmt: skip


def summary(group: int) -> GroupSummary:
    return GroupSummary(
        split="train", step=1, group=group, scenario_id=f"s{group}", title=f"Scenario {group}",
        rewards=[0.0, 0.5, 1.0], advantages=[-0.5, 0.0, 0.5], mean=0.5, std=0.4, signal=True,
    )  # fmt: skip


async def fill(file: Path) -> None:
    """Groups 0 to 3: with unstable verdicts, identical, labelled by Ann, label undone."""
    writer = RunWriter(file, "run")
    for group in range(4):
        texts = ["same"] * 3 if group == 1 else ["a", "b", "c"]
        siblings = rollouts(group, texts)
        for one in siblings:
            await writer.add_trajectory(one)
        await writer.add_group(summary(group))
        if group == 0:
            verdicts = [
                Verdict(trajectory_id=one.id, judge="m", rubric="r", score=0.5, passes=passes)
                for one, passes in zip(siblings, ([0.1, 0.9], [0.5, 0.5], [0.9, 0.1]), strict=True)
            ]
            await writer.add_verdicts(verdicts, siblings, False)
        if group >= 2:
            word = Word(kind="flag", trajectory_id=siblings[0].id)
            label = Label(id=f"l{group}", step=1, group=group, words=(word,), who="Ann", seq=group)
            await writer.add_label(label, summary(group), siblings)
            if group == 3:
                await writer.undo_label(label, summary(group), siblings)
    writer.close()


def test_queue_of_a_stored_run(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "run.db"))
    reader = RunReader(tmp_path / "run.db")

    def queue(**query: object) -> list[int]:
        request = ReviewQuery.model_validate(query)
        return [one.group for one in review_queue(reader, request, WEIGHTS).items]

    found = review_queue(reader, ReviewQuery(), WEIGHTS)
    assert (found.total, [one.group for one in found.items]) == (2, [0, 3])
    unstable = found.items[0]
    assert unstable.words == "The passes of the judge rank 3 of 3 pairs differently."
    assert unstable.strengths["judge_and_rules"] == 1.0
    assert queue(reasons=["judge_passes"]) == [0]
    assert queue(limit=1) == [0]
    assert queue(annotator="Ben") == [2]  # which Ann has labelled
    assert queue(annotator="Ann") == []
    assert queue(split="validation") == []
    reader.close()
