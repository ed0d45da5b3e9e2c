"""Candidates of a review queue, read from run.db with few queries and without whole records."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from engine.protocol.records.runs import Split

Rows = Callable[[str, tuple[object, ...]], list[tuple[object, ...]]]

# ?1 split, ?2 the annotator ('': anybody)
GROUPS = """
SELECT g.step, g.grp, json_extract(g.summary, '$.title', '$.rewards', '$.advantages')
FROM groups g WHERE g.split = ?1 AND iif(?2 = '',
    NOT EXISTS (SELECT 1 FROM labels l WHERE (l.split, l.step, l.grp) = (g.split, g.step, g.grp)
        AND l.undone IS NULL),
    EXISTS (SELECT 1 FROM labels l WHERE (l.split, l.step, l.grp) = (g.split, g.step, g.grp)
        AND l.undone IS NULL)
    AND NOT EXISTS (SELECT 1 FROM labels l
        WHERE (l.split, l.step, l.grp) = (g.split, g.step, g.grp)
        AND l.undone IS NULL AND l.body ->> '$.who' = ?2))
"""

TRAJECTORIES = """
SELECT step, grp, idx, id, turns, tokens, json_extract(summary, '$.parts', '$.problem.code')
FROM trajectories WHERE split = ?
"""

# the newest verdict of a judge comes last
VERDICTS = """
SELECT trajectory_id, judge, json_extract(body, '$.score', '$.passes')
FROM verdicts ORDER BY at, rubric
"""


class GroupRow(NamedTuple):
    """Group with rewards and advantages of its trajectories; lists in order of the index."""

    step: int
    group: int
    title: str
    rewards: list[float | None]
    advantages: list[float | None]


class TrajectoryRow(NamedTuple):
    """Length, reward parts and problem of one trajectory."""

    step: int
    group: int
    idx: int
    id: str
    turns: int
    tokens: int
    parts: dict[str, float]
    problem: str
    """Code of its problem; empty without one."""


Verdicts = dict[str, dict[str, tuple[float, list[float]]]]
"""Trajectory id → judge model → score of its newest verdict, and scores of its passes."""


class ReviewRows(NamedTuple):
    """Input of a review queue."""

    groups: list[GroupRow]
    trajectories: Iterator[TrajectoryRow]
    verdicts: Verdicts
    """Verdicts of all splits, without unscored ones."""


def read_review_rows(rows: Rows, split: Split, annotator: str) -> ReviewRows:
    """Return the unlabelled groups of a split or, with `annotator`, the groups that others have
    labelled but this annotator has not. `rows` is a function that executes an SQL query on the
    run.db."""
    groups = [
        GroupRow(int(str(step)), int(str(group)), *values)
        for (step, group, _), values in _parsed(rows(GROUPS, (split, annotator)))
    ]
    trajectories = (
        TrajectoryRow(*(*row[:6], parts, problem or ""))  # type: ignore[arg-type]
        for row, (parts, problem) in _parsed(rows(TRAJECTORIES, (split,)))
    )
    verdicts: Verdicts = {}
    for (name, judge, _), (score, passes) in _parsed(rows(VERDICTS, ())):
        if score is not None:
            verdicts.setdefault(str(name), {})[str(judge)] = (score, passes)
    return ReviewRows(groups, trajectories, verdicts)


def _parsed(found: Sequence[tuple[object, ...]]) -> Iterator[tuple[tuple[object, ...], list[Any]]]:
    """Pair each row with the JSON list in its last column; all of them are parsed at once, which is
    several times faster than one by one."""
    values = json.loads(f"[{','.join(str(row[-1]) for row in found)}]")
    return zip(found, values, strict=True)
