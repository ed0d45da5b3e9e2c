"""Measurement of how well each judge agrees with a person's labels. Reads the store only."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from statistics import fmean
from typing import NamedTuple

from engine.judge.calibration.agreement import order_of, tau_of
from engine.judge.prompting.transcript import lines_of, part_of, shared_start, shorten_middle
from engine.protocol.identical import first_of_identical
from engine.protocol.records.judging import Disagreement, Verdict
from engine.protocol.records.labels import Agreement, Label, preferences
from engine.protocol.records.runs import Split, Trajectory
from engine.reward.advantage.group import interval
from engine.storage.run_db.reader import RunReader

LATEST = 4000
"""Maximum number of verdicts per judge for flips, stability and length."""

CASE_CHARS = 1200
"""Maximum characters of each text in a disagreement."""

Place = tuple[Split, int, int]
Pairs = list[tuple[str, str]]
"""Preference pairs of trajectory ids: (better, worse)."""


class LabelledGroup(NamedTuple):
    """Trajectory ids of a labelled group, and the preferences of the person. Of identical
    trajectories only the first counts."""

    names: list[str]
    pairs: Pairs
    looks: list[Pairs]
    """Preferences of each blind label by the person who labelled the group more than once, oldest
    first; empty if nobody did."""


def agreements(reader: RunReader) -> list[Agreement]:
    """Agreement with a person's labels: one row per judge and rubric, most recent judge first."""
    human = labelled_groups(reader)
    names = [name for group in human for name in group.names]
    labelled: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in reader.verdicts(names):
        labelled.setdefault((verdict.judge, verdict.rubric), []).append(verdict)
    own = interval([tau for group in human if (tau := consistency(group.looks)) is not None])
    return [
        _row(reader, judge, rubric, labelled.get((judge, rubric), []), human).model_copy(
            update={"self_consistency": own, "repeats": own.count if own else 0}
        )
        for judge, rubric in reader.judges()
    ]


def labelled_groups(reader: RunReader) -> list[LabelledGroup]:
    """Return all groups with labels that express a preference."""
    found = []
    for place, labels in labels_by_place(reader).items():
        names = reader.names(*place)
        first = first_of_identical(reader.stored(*place))
        words = [word for label in labels for word in label.words]
        pairs = merged(preferences(words, names), first)
        if pairs:
            looks = [merged(preferences(one.words, names), first) for one in repeated(labels)]
            found.append(LabelledGroup(names, pairs, looks))
    return found


def repeated(labels: Sequence[Label]) -> list[Label]:
    """Return the blind labels by the first person who labelled the group blind more than once, from
    which the person's consistency is measured; empty if nobody did."""
    blind: dict[str, list[Label]] = {}
    for label in labels:
        if label.blind:
            blind.setdefault(label.who, []).append(label)
    return next((own for own in blind.values() if len(own) > 1), [])


def merged(pairs: Pairs, first: Mapping[str, str]) -> Pairs:
    """Preferences (better, worse) between distinct trajectories, each once. `first` maps an id
    to that of the first identical trajectory. Contradictory preferences are ties and left out."""
    known = {(first.get(a, a), first.get(b, b)): None for a, b in pairs}
    return [(a, b) for a, b in known if a != b and (b, a) not in known]


def tau_over(pairs: Pairs, scores: Mapping[str, float]) -> float | None:
    """Return (concordant − discordant) / pairs between `scores`, by trajectory id, and a person's
    preferences `pairs` (better, worse). Pairs without both scores are left out; equal scores count
    as neither. None without any pair."""
    known = [(a, b) for a, b in pairs if a in scores and b in scores]
    return fmean(order_of(scores[a], scores[b]) for a, b in known) if known else None


def consistency(looks: Sequence[Pairs]) -> float | None:
    """Return τ between the first two blind labels of a group, given as pairs (better, worse), over
    pairs that both decide; None without any."""
    if len(looks) < 2:
        return None
    first, second = set(looks[0]), set(looks[1])
    both = [(a, b) for a, b in first if (a, b) in second or (b, a) in second]
    return fmean(1.0 if pair in second else -1.0 for pair in both) if both else None


def order_flips(passes_by_name: Mapping[str, Sequence[float]]) -> tuple[int, int]:
    """Return (reversed pairs, compared pairs) between consecutive judge passes over a group, from
    each trajectory's scores by pass; (0, 0) unless every trajectory was scored in each pass."""
    if len({len(scores) for scores in passes_by_name.values()}) != 1:
        return 0, 0
    turned = compared = 0
    for a, b in combinations(passes_by_name.values(), 2):
        for one, other in pairwise(order_of(x, y) for x, y in zip(a, b, strict=True)):
            turned += one * other < 0
            compared += 1
    return turned, compared


def disagreements(reader: RunReader, judge: str, rubric: str, most: int = 50) -> list[Disagreement]:
    """Return up to `most` pairs that a judge with this version of its rubric orders differently
    from the person, largest gap first."""
    found = []
    for place, labels in labels_by_place(reader).items():
        if not (siblings := reader.stored(*place)):
            continue  # nothing that was stored of this group is left
        by_id = {one.id: one for one in siblings}
        words = [word for label in labels for word in label.words]
        pairs = merged(preferences(words, list(by_id)), first_of_identical(siblings))
        verdicts = {
            v.trajectory_id: v
            for v in reader.verdicts(list(by_id))
            if (v.judge, v.rubric) == (judge, rubric) and v.score is not None
        }
        common = shared_start([one.messages for one in siblings])
        for better, worse in pairs:
            one, other = verdicts.get(better), verdicts.get(worse)
            if one is None or other is None or order_of(one.score or 0, other.score or 0) > 0:
                continue
            found.append(
                Disagreement(
                    split=place[0],
                    step=place[1],
                    group=place[2],
                    title=siblings[0].title,
                    judge=judge,
                    rubric=rubric,
                    better=by_id[better].index,
                    worse=by_id[worse].index,
                    better_score=one.score or 0.0,
                    worse_score=other.score or 0.0,
                    reason=other.reason,
                    why=" ".join(label.why for label in labels if label.why),
                    task=_excerpt(siblings[0], 0, common),
                    better_text=_excerpt(by_id[better], common, None),
                    worse_text=_excerpt(by_id[worse], common, None),
                )
            )
    found.sort(key=lambda case: case.better_score - case.worse_score)
    return found[:most]


def labels_by_place(reader: RunReader) -> dict[Place, list[Label]]:
    """Labels in effect (not undone), by (split, step, group); each list oldest first."""
    found: dict[Place, list[Label]] = {}
    for label in reader.labels():
        if label.holds():
            found.setdefault((label.split, label.step, label.group), []).append(label)
    return found


def _excerpt(one: Trajectory, start: int, end: int | None) -> str:
    part = part_of(one, start, end)
    return shorten_middle(lines_of(part, CASE_CHARS, reasoning=False), CASE_CHARS)


def _row(
    reader: RunReader, judge: str, rubric: str, labelled: list[Verdict], human: list[LabelledGroup]
) -> Agreement:
    scores = {v.trajectory_id: v.score for v in labelled if v.score is not None}
    taus = [tau for group in human if (tau := tau_over(group.pairs, scores)) is not None]
    decided = [
        order_of(scores[a], scores[b])
        for group in human
        for a, b in group.pairs
        if a in scores and b in scores
    ]
    latest = reader.verdicts_of(judge, rubric, LATEST)
    groups = list(_by_group(latest).values())
    counts = [
        order_flips({v.trajectory_id: v.passes for v in group if v.passes}) for group in groups
    ]
    turned, compared = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    stable = [v.stability for v in latest if v.stability is not None]
    return Agreement(
        judge=judge,
        rubric=rubric,
        groups=len(taus),
        pairs=len(decided),
        tau=interval(taus),
        accuracy=fmean((1 + sign) / 2 for sign in decided) if decided else None,
        flips=turned / compared if compared else None,
        stability=fmean(stable) if stable else None,
        length=_length(reader, groups),
        unscored=sum(v.score is None for v in latest),
        usd=reader.cost_of({key for v in latest for key in v.calls}),
    )


def _length(reader: RunReader, groups: Iterable[list[Verdict]]) -> float | None:
    """Mean τ between score and length, over groups in which both vary; None without any."""
    groups = list(groups)
    names = [v.trajectory_id for group in groups for v in group]
    tokens = {row.id: float(row.sampled_tokens) for row in reader.summaries(names)}
    taus = []
    for group in groups:
        scores = {v.trajectory_id: v.score for v in group if v.score is not None}
        lengths = {name: tokens[name] for name in scores if name in tokens}
        if len(set(scores.values())) > 1 and len(set(lengths.values())) > 1:
            tau = tau_of(scores, lengths)
            taus += [tau] if tau is not None else []
    return fmean(taus) if taus else None


def _by_group(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Group verdicts by the part of the id that the trajectories of a group share."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.trajectory_id.rpartition("-")[0], []).append(verdict)
    return found
