"""Blind grading: data hidden before the label, comparison afterwards (pure functions)."""

from collections.abc import Sequence

from engine.protocol.records.judging import Verdict
from engine.protocol.records.labels import Label, preferences
from engine.protocol.requests.runs import Siblings
from studio.text import formatting


def blinded(siblings: Siblings) -> Siblings:
    """Return a copy of a group without rewards, advantages, reward parts, verdicts and labels."""
    nothing: dict[str, object] = {
        "reward": None,
        "advantage": None,
        "parts": {},
        "labels": (),
        "unlabelled": None,
    }
    bare = [one.model_copy(update=nothing) for one in siblings.trajectories]
    count = len(bare)
    hidden: dict[str, object] = {"rewards": [None] * count, "advantages": [None] * count}
    group = siblings.group.model_copy(update={**hidden, "mean": None, "std": None})
    return Siblings(group=group, trajectories=bare)


def agreement_words(label: Label, siblings: Siblings) -> str:
    """Describe how many of the pairs that `label` orders have the same order by the judge's scores
    (by the rewards, if the judge has scored none of the group)."""
    numbers = {one.id: one.index + 1 for one in siblings.trajectories}
    pairs = preferences(label.words, list(numbers))
    scores = judged(siblings.verdicts)
    who = "The judge"
    if not scores:
        who = "The reward"
        scores = {
            one.id: reward
            for one in siblings.trajectories
            if (reward := one.unlabelled.reward if one.unlabelled else one.reward) is not None
        }
    known = [(a, b) for a, b in pairs if a in scores and b in scores]
    if not known:
        return f"{who} has not scored these pairs. Press B for the next group."
    wrong = [(a, b) for a, b in known if scores[a] <= scores[b]]
    if not wrong:
        every = "the pair" if len(known) == 1 else f"all {len(known)} pairs"
        return f"{who} agrees with you on {every}. Press B for the next group."
    better, worse = max(wrong, key=lambda pair: scores[pair[1]] - scores[pair[0]])
    of_pairs = f"{len(known) - len(wrong)} of {formatting.plural(len(known), 'pair')}"
    agrees = f"{who} agrees with you on {of_pairs}: "
    differs = (
        f"it scores {numbers[worse]} at {formatting.number(scores[worse])} and {numbers[better]} "
    )
    why = f"at {formatting.number(scores[better])}. Press N for a note, B for the next group."
    return agrees + differs + why


def judged(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Map trajectory ids to their newest judge score; unscored ones are absent. `verdicts` are in
    stored order, oldest first."""
    return {one.trajectory_id: one.score for one in verdicts if one.score is not None}
