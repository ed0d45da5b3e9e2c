"""Examples for the judge from labels: a few, chosen by similarity to the current task."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from engine.judge.prompting.transcript import lines_of, part_of, shared_start, shorten_middle
from engine.protocol.records.labels import Label, preferences
from engine.protocol.records.runs import Trajectory
from engine.storage.run_folder.run import Run

MOST = 3
"""Maximum number of examples in one prompt."""
TASK_CHARS, ATTEMPT_CHARS = 800, 1600
WORD = re.compile(r"\w+")


class JudgeExample(NamedTuple):
    """Labelled comparison of two trajectories as text for the judge's prompt."""

    label: str
    """Id of the label it comes from."""
    task: str
    words: str


def examples_of_run(run: Run) -> list[JudgeExample]:
    """Examples for judge prompts from all labels that prefer a trajectory and are not undone,
    oldest first."""
    found = []
    for label in run.reader.labels():
        if label.teaches and label.holds():
            siblings = run.reader.stored(label.split, label.step, label.group)
            found += examples_of_label(label, siblings)
    return found


def examples_of_label(label: Label, siblings: Sequence[Trajectory]) -> list[JudgeExample]:
    """Example for judge prompts with the most and the least preferred trajectory of a label, as a
    list; empty if the label prefers none. `siblings`: all trajectories of the group."""
    wins = dict.fromkeys((one.id for one in siblings), 0)
    for better, worse in preferences(label.words, list(wins)):
        wins[better] += 1
        wins[worse] -= 1
    best, worst = max(wins, key=lambda n: wins[n]), min(wins, key=lambda n: wins[n])
    if wins[best] == wins[worst]:
        return []
    by_id = {one.id: one for one in siblings}
    common = shared_start([one.messages for one in siblings])
    task = shorten_middle(_lines(by_id[best], 0, common, TASK_CHARS), TASK_CHARS)
    parts = [
        f"Task:\n{task}",
        f"Better:\n{_lines(by_id[best], common, None, ATTEMPT_CHARS)}",
        f"Worse:\n{_lines(by_id[worst], common, None, ATTEMPT_CHARS)}",
    ]
    notes = [label.why, *(word.text for word in label.words if word.kind == "note")]
    why = " ".join(note for note in notes if note)
    return [JudgeExample(label.id, task, "\n\n".join([*parts, *([f"Why: {why}"] if why else [])]))]


def nearest(examples: Sequence[JudgeExample], task: str) -> list[str]:
    """Return the texts of the `MOST` examples most similar to `task`, best first, by the Jaccard
    index of the words of the tasks (Jaccard 1912); newer first among equals."""
    words = set(WORD.findall(task.lower()))
    ranked = sorted(
        enumerate(examples), key=lambda pair: (-_likeness(words, pair[1].task), -pair[0])
    )
    return [example.words for _, example in ranked[:MOST]]


def _likeness(words: set[str], task: str) -> float:
    others = set(WORD.findall(task.lower()))
    return len(words & others) / max(len(words | others), 1)


def _lines(attempt: Trajectory, start: int, end: int | None, most: int) -> str:
    part = part_of(attempt, start, end)
    return shorten_middle(lines_of(part, most, reasoning=False), most * 2)
