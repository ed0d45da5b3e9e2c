"""What a person says about the attempts of a group, on the wire.

Frozen: a change of mind is another label, and an undone one stays on record.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from engine.protocol.base import Value
from engine.protocol.records.runs import GroupSummary, Interval, Split, TrajectorySummary

PART = "label"
"""Name of the reward part that stands where a person has spoken."""

MOST_STALE = 4
"""Steps after which a corrected group is too old to be trained on again."""

WordKind = Literal["score", "order", "best", "worst", "veto", "exclude", "gold", "flag", "note"]
OF_GROUP: frozenset[str] = frozenset({"order", "best", "worst"})
"""Kinds that compare siblings; the others speak of one attempt."""
SCORING: frozenset[str] = OF_GROUP | {"score"}
"""Kinds that say how good an attempt is."""


Enters = Literal["this step", "the next step", "no step"]


class Word(Value):
    """One thing that a label says."""

    kind: WordKind
    trajectory_id: str | None = None
    """Whom it is about; None for an order, and for a note on the whole group."""
    value: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of a score."""
    order: tuple[tuple[str, ...], ...] = ()
    """Of an order: best first; those in one tuple are equally good."""
    text: str = ""
    """Of a note."""


class Label(Value):
    """What one person says about one group at one time: undone and redone as a whole."""

    id: str
    """Chosen by whoever sends it: the same id is stored once."""
    run_id: str = ""
    """Run of the group. A label that names another run than the one it is sent to, or none, is
    refused: trajectories have the same ids in every run."""
    split: Split = "train"
    step: int
    group: int
    words: tuple[Word, ...] = Field(min_length=1)
    effect: Literal["reward", "again", "none"] = "reward"
    """`reward` changes the rewards of the group, and enters its update while its batch is open;
    `again` also puts the corrected group into the next batch; `none` is only measured."""
    teaches: bool = False
    """It becomes an example in the judge's prompt."""
    blind: bool = False
    """Given without sight of scores and reasons."""
    who: str = ""
    why: str = ""
    at: float = 0.0
    rubric: str = ""
    """Version of the rubric that the person saw."""
    seq: int = 0
    """The event that stored it."""
    undone: int | None = None
    """The event that undid it."""
    redo_of: str | None = None

    def for_run(self, run_id: str) -> "Label":
        """The same label, naming this run where it names none."""
        return self if self.run_id else self.model_copy(update={"run_id": run_id})

    def holds(self, until: int | None = None) -> bool:
        """Whether it counts: now, or as seen just before event `until`."""
        if until is None:
            return self.undone is None
        return self.seq < until and (self.undone is None or self.undone > until)


class Outcome(Value):
    """What labels do to one attempt."""

    trajectory_id: str
    index: int
    reward: float | None
    """Without them."""
    advantage: float | None
    new_reward: float | None
    new_advantage: float | None


class LabelPreview(Value):
    """What a label would do, computed by what would do it."""

    outcomes: list[Outcome]
    enters: Enters
    """Which update learns from it."""
    mapped: int = 0
    """Labelled scores behind the map from judge to person that siblings pass through; 0: none."""


class Labelled(Value):
    """A group after a label was given, undone or redone."""

    label: Label
    group: GroupSummary
    trajectories: list[TrajectorySummary]


class Agreement(Value):
    """How far a judge goes along with the person, and with itself, over the groups of a run."""

    judge: str
    rubric: str
    """Version of the rubric; for a judge that looks again after an edit, one row each."""
    groups: int
    """Labelled groups that it has judged."""
    pairs: int
    """Pairs of attempts in them of which the person prefers one."""
    tau: Interval | None = None
    """Kendall's τ over those pairs, mean over groups; None without any."""
    accuracy: float | None = None
    """Share of those pairs that it puts in the person's order, ties as halves."""
    flips: float | None = None
    """Share of pairs whose order differs between two of its passes over the same group."""
    stability: float | None = None
    """Mean τ between its passes."""
    length: float | None = None
    """Mean τ between its scores and the lengths of the attempts, in all groups it has judged."""
    self_consistency: Interval | None = None
    """τ between the person's first and second blind look at the same groups: the most that can be
    asked of a judge."""
    repeats: int = 0
    """Groups that the person has graded twice."""
    unscored: int = 0
    """Verdicts without a score."""
    usd: float = 0.0


def preferences(words: Sequence[Word], names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs (better, worse) that these words say, of attempts in `names`; nothing of ties, nothing
    of pairs about which a later word says the opposite."""
    held: dict[frozenset[str], tuple[str, str] | None] = {}
    values = {
        word.trajectory_id: word.value
        for word in words
        if word.kind == "score" and word.value is not None and word.trajectory_id in names
    }
    scored = [name for name in values if name]
    for one in scored:
        for other in scored:
            if values[one] > values[other]:  # type: ignore[operator]
                held[frozenset((one, other))] = (one, other)
    for word in words:
        if word.kind not in SCORING or word.kind == "score":
            continue
        for better, worse in _ordered(word, names):
            held[frozenset((better, worse))] = (better, worse)
    return [pair for pair in held.values() if pair]


def _ordered(word: Word, names: Sequence[str]) -> list[tuple[str, str]]:
    who = word.trajectory_id
    if word.kind == "order":
        layers = [[name for name in layer if name in names] for layer in word.order]
        return [
            (better, worse)
            for place, layer in enumerate(layers)
            for better in layer
            for lower in layers[place + 1 :]
            for worse in lower
        ]
    if who is None or who not in names:
        return []
    others = [name for name in names if name != who]
    return [(who, o) if word.kind == "best" else (o, who) for o in others]
