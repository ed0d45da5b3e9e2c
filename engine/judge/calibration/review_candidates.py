"""Review queue of a run: candidates from the store, ranked by `review_queue`."""

from collections.abc import Mapping, Sequence

from engine.judge.calibration.review_queue import Candidate, Reviewed, rank_groups
from engine.protocol.identical import first_of_identical
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.labels import is_label_part
from engine.protocol.records.runs import Split
from engine.protocol.requests.review import ReviewItem, ReviewQuery, ReviewQueue
from engine.storage.run_db.reader import RunReader
from engine.storage.run_db.review import GroupRow, TrajectoryRow, Verdicts

SCORABLE = ("", "judge", "reward", "label")
"""Families of problem codes that do not prevent a score."""


def review_queue(
    reader: RunReader, query: ReviewQuery, weights: Mapping[str, float]
) -> ReviewQueue:
    """Return the groups to label that `query` selects, most informative first, up to its limit, and
    their total. `weights`: reward part → weight, by which the parts other than the judge's are
    summed."""
    candidates = candidates_of(reader, query.split, query.annotator, weights)
    ranked = rank_groups(candidates, query.reasons)
    alike = {(one.step, one.group) for one in candidates if _may_be_identical(one)}
    items: list[ReviewItem] = []
    left_out = 0
    for item in ranked:
        if len(items) == query.limit:
            break
        place = (item.split, item.step, item.group)
        if place[1:] in alike and len(set(first_of_identical(reader.stored(*place)).values())) == 1:
            left_out += 1
        else:
            items.append(item)
    return ReviewQueue(total=len(ranked) - left_out, items=items)


def candidates_of(
    reader: RunReader, split: Split, annotator: str, weights: Mapping[str, float]
) -> list[Candidate]:
    """Groups that nobody has labelled or, if `annotator` is a name, groups that others but not this
    annotator have labelled; each with the scores of its judges and rules."""
    rows = reader.review_rows(split, annotator)
    found: dict[tuple[int, int], list[tuple[str, Reviewed]]] = {}
    for row in rows.trajectories:
        found.setdefault((row.step, row.group), []).append((row.id, _reviewed(row, weights)))
    return [
        _candidate(split, group, siblings, rows.verdicts)
        for group in rows.groups
        if (siblings := found.get((group.step, group.group)))
    ]


def _candidate(
    split: Split, row: GroupRow, siblings: Sequence[tuple[str, Reviewed]], verdicts: Verdicts
) -> Candidate:
    scores: dict[str, dict[int, float]] = {}
    passes: dict[str, dict[int, list[float]]] = {}
    for name, one in siblings:
        for judge, (score, seen) in verdicts.get(name, {}).items():
            scores.setdefault(judge, {})[one.idx] = score
            passes.setdefault(judge, {})[one.idx] = seen
    return Candidate(
        split=split,
        step=row.step,
        group=row.group,
        title=row.title,
        rewards=row.rewards,
        advantages=row.advantages,
        trajectories=[one for _, one in siblings],
        scores=scores,
        passes=passes,
    )


def _reviewed(row: TrajectoryRow, weights: Mapping[str, float]) -> Reviewed:
    rules = [
        weights.get(name, 1.0) * value
        for name, value in row.parts.items()
        if name != RULER and not is_label_part(name)
    ]
    return Reviewed(
        idx=row.idx,
        turns=row.turns,
        tokens=row.tokens,
        judge=row.parts.get(RULER),
        rules=sum(rules) if rules else None,
        may_be_scored=row.problem.partition(".")[0] in SCORABLE,
    )


def _may_be_identical(one: Candidate) -> bool:
    """Whether all trajectories have the same number of turns and tokens: only their messages can
    show whether they differ."""
    return len({(t.turns, t.tokens) for t in one.trajectories}) == 1
