"""Labels: a person's scores, rankings, vetoes and notes on trajectories.

Labels are immutable: a correction is another label, and an undone label stays on record.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from engine.protocol.base import Value
from engine.protocol.problems import ConfigError
from engine.protocol.records.runs import GroupSummary, Interval, Split, TrajectorySummary

PART = "label"
"""Name of the reward part set by labels."""

MOST_STALE = 4
"""Maximum age in steps of a relabelled group that is trained on again."""

WordKind = Literal[
    "score", "order", "best", "worst", "veto", "exclude", "gold", "flag", "note", "field"
]
OF_GROUP: frozenset[str] = frozenset({"order", "best", "worst"})
"""Kinds that compare the trajectories of a group; the others concern one trajectory."""
SCORING: frozenset[str] = OF_GROUP | {"score"}
"""Kinds that determine a reward."""


def field_part(name: str) -> str:
    """Name of the metric and reward part (`label/NAME`) of the custom label field `name`."""
    return f"{PART}/{name}"


def is_label_part(name: str) -> bool:
    """Return whether labels set the reward part of this name: `label` or `label/NAME`."""
    return name == PART or name.startswith(f"{PART}/")


Enters = Literal["this step", "the next step", "no step"]


class Word(Value):
    """Single statement of a label: a score, a ranking, a mark such as `veto`, a note or a field."""

    kind: WordKind
    trajectory_id: str | None = None
    """Id of the trajectory; None for a ranking, and for a note on the whole group."""
    value: float | None = None
    """Value of a score, in [0, 1], or of a number field."""
    order: tuple[tuple[str, ...], ...] = ()
    """Ranking of the trajectories, best first; those in one tuple are tied."""
    text: str = ""
    """Text of a note or text field, or the chosen value of a choice field."""
    name: str = ""
    """Name of a custom field."""

    @model_validator(mode="after")
    def _check_score(self) -> "Word":
        if self.kind != "field" and self.value is not None and not 0 <= self.value <= 1:
            raise ValueError(f"has the score {self.value:g}: scores are between 0 and 1")
        return self


class Label(Value):
    """Label of one person on one group, undone and redone as a whole."""

    id: str
    """Id chosen by the sender; the same id is stored once."""
    run_id: str = ""
    """Run of the group. Trajectories have the same ids in every run, so a label without this run's
    id is refused."""
    split: Split = "train"
    step: int
    group: int
    words: tuple[Word, ...] = Field(min_length=1)
    effect: Literal["reward", "again", "none"] = "reward"
    """`reward` changes the rewards of the group, and enters its update while its batch is open;
    `again` also adds the corrected group to the next batch; `none` is only used to measure
    agreement."""
    teaches: bool = False
    """Whether it is used as an example in the judge's prompt."""
    blind: bool = False
    """Whether it was given without seeing scores and reasons."""
    who: str = ""
    why: str = ""
    at: float = 0.0
    rubric: str = ""
    """Version of the rubric that the person saw."""
    seq: int = 0
    """Sequence number of the event that stored it."""
    undone: int | None = None
    """Sequence number of the event that undid it."""
    redo_of: str | None = None

    def for_run(self, run_id: str) -> "Label":
        """Return the label, or a copy with this run's id if it has none."""
        return self if self.run_id else self.model_copy(update={"run_id": run_id})

    def holds(self, until: int | None = None) -> bool:
        """Return whether the label is in force just before event `until` (seq; None: now)."""
        if until is None:
            return self.undone is None
        return self.seq < until and (self.undone is None or self.undone > until)


class Outcome(Value):
    """Effect of labels on one trajectory."""

    trajectory_id: str
    index: int
    reward: float | None
    """Reward without the labels."""
    advantage: float | None
    new_reward: float | None
    new_advantage: float | None


class LabelPreview(Value):
    """Predicted effect of a label, computed by the code that applies it."""

    outcomes: list[Outcome]
    enters: Enters
    """Update that will use the label."""
    mapped: int = 0
    """Number of labelled scores used to map judge scores to the person's scale for unlabelled
    trajectories; 0: no mapping."""


class Labelled(Value):
    """Group after a label was added, undone or redone."""

    label: Label
    group: GroupSummary
    trajectories: list[TrajectorySummary]


class Agreement(Value):
    """Agreement of a judge with the person, and with itself, over the groups of a run."""

    judge: str
    rubric: str
    """Version of the rubric; one row per version if the judge scored groups again after an edit."""
    groups: int
    """Number of labelled groups that it scored."""
    pairs: int
    """Number of pairs of trajectories in them for which the person has a preference."""
    tau: Interval | None = None
    """Kendall's τ over those pairs, mean over groups; None without pairs."""
    accuracy: float | None = None
    """Share of those pairs in the person's order; ties count half."""
    flips: float | None = None
    """Share of pairs whose order differs between two judge passes over the same group."""
    stability: float | None = None
    """Mean Kendall's τ between judge passes."""
    length: float | None = None
    """Mean τ between scores and lengths of the trajectories, over all groups it scored."""
    self_consistency: Interval | None = None
    """Kendall's τ between the person's first and second blind labels of the same groups: the
    ceiling for any judge."""
    repeats: int = 0
    """Number of groups that the person has labelled twice."""
    unscored: int = 0
    """Number of verdicts without a score."""
    usd: float = 0.0


class Annotator(Value):
    """Person who labelled groups of a run; only labels in force count."""

    name: str
    labels: int
    groups: int
    blind: int
    """Number of labels given without seeing scores."""


class AnnotatorPair(Value):
    """Agreement of two annotators over the groups that both labelled."""

    one: str
    other: str
    groups: int
    """Number of groups that both labelled."""
    pairs: int
    """Number of pairs of trajectories in them that both order."""
    tau: Interval | None = None
    """Kendall's τ over those pairs, mean over groups; None without pairs."""
    accuracy: float | None = None
    """Share of those pairs that both order equally."""


class Annotators(Value):
    """All annotators of a run, by name, and the agreement of each two of them."""

    annotators: list[Annotator]
    pairs: list[AnnotatorPair]


def labels_of_lines(lines: Iterable[tuple[int, str]], file: str) -> list[Label]:
    """Parse the lines of a JSON Lines file of labels, each with its number from 1; empty ones are
    skipped. Raises ConfigError with the first line that is not a label."""
    found = []
    for number, line in lines:
        try:
            found += [Label.model_validate_json(line)] if line.strip() else []
        except ValidationError as error:
            raise ConfigError.of(
                "label.wrong_line",
                "This line is not a label.",
                "`atelier label export` shows valid lines.",
                where=f"{file}:{number}",
                detail=str(error)[:500],
            ) from error
    return found


def preferences(words: Sequence[Word], names: Sequence[str]) -> list[tuple[str, str]]:
    """Derive (better, worse) pairs of trajectory ids from the statements `words` of a person's
    labels, oldest first; ids that are not in `names` are ignored. Ties give no pair. If two labels
    contradict each other about a pair, the later one counts."""
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
