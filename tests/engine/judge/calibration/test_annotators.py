"""Agreement among annotators: over the groups and pairs that both have ordered."""

import asyncio
from pathlib import Path

from engine.judge.calibration.annotators import annotators
from engine.protocol.records.labels import Label, Word
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.writer import RunWriter
from tests.engine.judge.calibration.test_review_candidates import rollouts, summary

ORDERS = {
    ("Ann", 0): "abc", ("Ben", 0): "abc", ("Ann", 1): "abc", ("Ben", 1): "cba", ("Cem", 2): "abc",
}  # fmt: skip


async def fill(file: Path) -> None:
    """Three groups; Ann and Ben agree about the first, and order the second in reverse."""
    writer = RunWriter(file, "run")
    for group in range(3):
        for one in rollouts(group, ["a", "b", "c"]):
            await writer.add_trajectory(one)
        await writer.add_group(summary(group))
    for (who, group), order in ORDERS.items():
        siblings = rollouts(group, ["a", "b", "c"])
        layers = tuple((siblings["abc".index(letter)].id,) for letter in order)
        word = Word(kind="order", order=layers)
        place = {"step": 1, "group": group}
        label = Label(id=f"{who}{group}", words=(word,), who=who, blind=who == "Ann", **place)  # type: ignore[arg-type]
        await writer.add_label(label, summary(group), siblings)
    writer.close()


def test_agreement_over_common_groups(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "run.db"))
    reader = RunReader(tmp_path / "run.db")
    found = annotators(reader)
    reader.close()
    people = [(one.name, one.labels, one.groups, one.blind) for one in found.annotators]
    assert people == [("Ann", 2, 2, 2), ("Ben", 2, 2, 0), ("Cem", 1, 1, 0)]
    first, *others = found.pairs
    assert (first.one, first.other, first.groups, first.pairs) == ("Ann", "Ben", 2, 6)
    assert first.tau is not None
    assert (first.tau.mean, first.accuracy) == (0.0, 0.5)
    assert [(pair.groups, pair.tau, pair.accuracy) for pair in others] == [(0, None, None)] * 2
