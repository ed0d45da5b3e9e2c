"""Agreement among the people who labelled a run. Reads the store only."""

from itertools import combinations
from statistics import fmean

from engine.judge.calibration.measurement import Pairs, Place, consistency, labels_by_place, merged
from engine.protocol.identical import first_of_identical
from engine.protocol.records.labels import (
    Annotator,
    AnnotatorPair,
    Annotators,
    Label,
    Word,
    preferences,
)
from engine.reward.advantage.group import interval
from engine.storage.run_db.reader import RunReader


def annotators(reader: RunReader) -> Annotators:
    """Annotators of a run, and for each two of them Kendall's τ (Kendall 1938) over the groups that
    both labelled: (agreeing − reversed) / pairs that both order, mean over groups. Undone labels do
    not count; of identical trajectories only the first does."""
    places = labels_by_place(reader)
    ordered = [_ordered_by(reader, place, labels) for place, labels in places.items()]
    labels = [label for group in places.values() for label in group]
    names = sorted({label.who for label in labels})
    return Annotators(
        annotators=[_annotator(name, [one for one in labels if one.who == name]) for name in names],
        pairs=[_pair(one, other, ordered) for one, other in combinations(names, 2)],
    )


def _ordered_by(reader: RunReader, place: Place, labels: list[Label]) -> dict[str, Pairs]:
    """Preferences (better, worse) in a group by annotator."""
    siblings = reader.stored(*place)
    names, first = [one.id for one in siblings], first_of_identical(siblings)
    words: dict[str, list[Word]] = {}
    for label in labels:
        words.setdefault(label.who, []).extend(label.words)
    return {who: merged(preferences(statements, names), first) for who, statements in words.items()}


def _annotator(name: str, labels: list[Label]) -> Annotator:
    groups = {(label.split, label.step, label.group) for label in labels}
    blind = sum(label.blind for label in labels)
    return Annotator(name=name, labels=len(labels), groups=len(groups), blind=blind)


def _pair(one: str, other: str, ordered: list[dict[str, Pairs]]) -> AnnotatorPair:
    both = [(group[one], group[other]) for group in ordered if one in group and other in group]
    taus = [tau for pair in both if (tau := consistency(pair)) is not None]
    decided = [
        pair in set(second)
        for first, second in both
        for pair in first
        if pair in set(second) or pair[::-1] in set(second)
    ]
    return AnnotatorPair(
        one=one,
        other=other,
        groups=len(both),
        pairs=len(decided),
        tau=interval(taus),
        accuracy=fmean(decided) if decided else None,
    )
