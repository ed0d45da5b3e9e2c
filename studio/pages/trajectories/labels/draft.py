"""Uncommitted label of a group (pure, immutable). Each change returns a new Draft, so that undo can
restore the previous one. Arguments named `name` are trajectory ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.protocol.records.labels import Word, WordKind
from engine.protocol.records.runs import TrajectorySummary

Mark = Literal["veto", "exclude", "gold", "flag"]
MARKS: tuple[Mark, ...] = ("veto", "exclude", "gold", "flag")
_LEAVES_OUT: frozenset[Mark] = frozenset({"veto", "exclude"})


@dataclass(frozen=True)
class Draft:
    """Uncommitted label. `scores` and `notes` are by trajectory id."""

    best: tuple[str, ...] = ()
    """Id of the best trajectory, or of several tied ones."""
    worst: str = ""
    order: tuple[tuple[str, ...], ...] = ()
    """Full ranking of ids, best first, ties together; replaces best and worst."""
    marks: frozenset[tuple[str, Mark]] = frozenset()
    scores: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self != Draft()

    def as_best(self, name: str) -> "Draft":
        """Return a copy with "best" toggled on the trajectory with id `name`."""
        best = () if self.best == (name,) else (name,)
        worst = "" if self.worst == name else self.worst
        return replace(self, best=best, worst=worst, order=())

    def as_worst(self, name: str) -> "Draft":
        """Return a copy with "worst" toggled on the trajectory with id `name`."""
        worst = "" if self.worst == name else name
        best = tuple(one for one in self.best if one != name)
        return replace(self, best=best, worst=worst, order=())

    def tied(self, name: str) -> "Draft":
        """Return a copy with trajectory `name` (id) added to, or removed from, the tie for best."""
        inside = name in self.best
        best = tuple(o for o in self.best if o != name) if inside else (*self.best, name)
        worst = "" if self.worst == name else self.worst
        return replace(self, best=best, worst=worst, order=())

    def ranked(self, names: Sequence[str]) -> "Draft":
        """Return a copy that ranks all trajectories by their ids `names`, best first."""
        return replace(self, order=tuple((name,) for name in names), best=(), worst="")

    def marked(self, name: str, mark: Mark) -> "Draft":
        """Return a copy with `mark` toggled on the trajectory with id `name`. Veto and exclude
        replace each other."""
        given = (name, mark)
        if given in self.marks:
            return replace(self, marks=self.marks - {given})
        other = {(name, m) for m in _LEAVES_OUT} if mark in _LEAVES_OUT else set()
        return replace(self, marks=(self.marks - other) | {given})

    def scored(self, name: str, value: float | None) -> "Draft":
        """Return a copy with the score `value` for the trajectory `name` (id); None removes it."""
        rest = {one: score for one, score in self.scores.items() if one != name}
        return replace(self, scores=rest if value is None else {**rest, name: value})

    def noted(self, name: str, text: str) -> "Draft":
        """Return a copy with the note `text` for the trajectory `name` (id); empty removes it."""
        rest = {one: note for one, note in self.notes.items() if one != name}
        return replace(self, notes={**rest, name: text.strip()} if text.strip() else rest)

    def kinds_of(self, name: str) -> list[str]:
        """Return the labels of trajectory `name`: `#rank`, best, tie, worst, marks, score, note."""
        kinds = []
        if name in self.best:
            kinds.append("best" if len(self.best) == 1 else "tie")
        if name == self.worst:
            kinds.append("worst")
        kinds += [mark for mark in MARKS if (name, mark) in self.marks]
        if name in self.scores:
            kinds.append("score")
        if name in self.notes:
            kinds.append("note")
        places = [place for place, layer in enumerate(self.order) if name in layer]
        return [f"#{place + 1}" for place in places] + kinds

    def words(self, siblings: Sequence[TrajectorySummary]) -> tuple[Word, ...]:
        """Convert the draft to statements of a Label; `siblings` are all trajectories of the group.

        A tie is stored as one order per other scored trajectory: the tied ones, then the other. The
        order among the others stays unspecified."""
        entries = [_word("score", name, value=value) for name, value in self.scores.items()]
        if self.order:
            entries.append(Word(kind="order", order=self.order))
        elif len(self.best) > 1:
            others = [
                one.id
                for one in siblings
                if one.id not in (*self.best, self.worst) and one.reward is not None
            ]
            pairs: list[tuple[tuple[str, ...], ...]] = [(self.best, (one,)) for one in others]
            entries += [Word(kind="order", order=pair) for pair in pairs or [(self.best,)]]
        elif self.best:
            entries.append(_word("best", self.best[0]))
        if self.worst:
            entries.append(_word("worst", self.worst))
        placed = {one.id: place for place, one in enumerate(siblings)}
        marks = sorted(self.marks, key=lambda m: (placed.get(m[0], 0), MARKS.index(m[1])))
        entries += [_word(mark, name) for name, mark in marks]
        entries += [_word("note", name, text=text) for name, text in self.notes.items()]
        return tuple(entries)


def _word(kind: WordKind, name: str, value: float | None = None, text: str = "") -> Word:
    return Word(kind=kind, trajectory_id=name, value=value, text=text)


def score_of(typed: str) -> float | None:
    """Parse a score in [0, 1]: `85` is 0.85, `1` is 1, `0.4` is 0.4; None if invalid."""
    text = typed.strip().replace(",", ".")
    if text.isascii() and text.isdigit():
        text = text if text in ("0", "1") else f"0.{text}"
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def may_be_ranked(one: TrajectorySummary) -> bool:
    """Return whether a trajectory completed without a problem and can be ranked."""
    problem = one.unlabelled.problem if one.unlabelled else one.problem
    return problem is None or problem.code.partition(".")[0] in ("judge", "reward", "label")
