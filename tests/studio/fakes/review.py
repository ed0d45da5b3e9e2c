"""Review queue of the fake engine: the real ranking of a simulated run."""

from collections.abc import Iterable

from engine.judge.calibration.review_queue import Candidate, Reviewed, rank_groups
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import GroupSummary
from engine.protocol.requests.review import ReviewQuery, ReviewQueue
from tests.studio.fakes.simulated_run import Made


def queue_of(made: Made, labels: Iterable[Label], query: ReviewQuery) -> ReviewQueue:
    annotators: dict[tuple[str, int, int], set[str]] = {}
    for one in labels:
        if one.holds():
            annotators.setdefault((one.split, one.step, one.group), set()).add(one.who)
    candidates = []
    for group in made.groups:
        names = annotators.get((group.split, group.step, group.group), set())
        only_others = bool(names) and query.annotator not in names
        wanted = only_others if query.annotator else not names
        if wanted and group.split == query.split:
            candidates.append(_candidate(made, group))
    ranked = rank_groups(candidates, query.reasons)
    return ReviewQueue(total=len(ranked), items=ranked[: query.limit])


def _candidate(made: Made, group: GroupSummary) -> Candidate:
    place = (group.split, group.step, group.group)
    rows = [one for one in made.trajectories if (one.split, one.step, one.group) == place]
    return Candidate(
        split=group.split,
        step=group.step,
        group=group.group,
        title=group.title,
        rewards=group.rewards,
        advantages=group.advantages,
        trajectories=[
            Reviewed(
                idx=one.index,
                turns=one.turns,
                tokens=one.sampled_tokens,
                judge=one.parts.get("ruler"),
                rules=one.parts.get("rules"),
            )
            for one in sorted(rows, key=lambda row: row.index)
        ],
    )
