"""Uncommitted label of a group (pure, immutable). Each change returns a new Draft, so that undo can
restore the previous one. Arguments named `name` are trajectory ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.protocol.config.labels import FieldValue
from engine.protocol.records.labels import Word, WordKind
from engine.protocol.records.runs import TrajectorySummary
from studio.pages.trajectories.labels.fields import shown

Mark = Literal["veto", "exclude", "gold", "flag"]
MARKS: tuple[Mark, ...] = ("veto", "exclude", "gold", "flag")
NONE: Mapping[str, tuple[str, ...]] = {}
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
    fields: dict[tuple[str, str], FieldValue] = field(default_factory=dict)
    """Values of custom fields by (trajectory id, field)."""

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

    def answered(self, name: str, field_name: str, value: FieldValue | None) -> "Draft":
        """Return a copy with a value of a custom field for the trajectory `name` (id); None removes
        it."""
        key = (name, field_name)
        rest = {one: known for one, known in self.fields.items() if one != key}
        return replace(self, fields=rest if value is None else {**rest, key: value})

    def kinds_of(self, name: str) -> list[str]:
        """Return the labels of trajectory `name`: `#rank`, best, tie, worst, marks, score, note,
        `=field: value`."""
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
        values = [(key[1], value) for key, value in self.fields.items() if key[0] == name]
        kinds += [f"={field_name}: {shown(value)}" for field_name, value in values]
        places = [place for place, layer in enumerate(self.order) if name in layer]
        return [f"#{place + 1}" for place in places] + kinds

    def words(
        self, siblings: Sequence[TrajectorySummary], copies: Mapping[str, tuple[str, ...]] = NONE
    ) -> tuple[Word, ...]:
        """Convert the draft to statements of a Label; `siblings` are all trajectories of the group.
        `copies`: id → ids of the identical trajectories that it stands for, itself included. All
        of them get its score, rank, veto, exclusion and custom fields.

        A tie is stored as one order per other scored trajectory: the tied ones, then the other. The
        order among the others stays unspecified."""
        entries = [
            _word("score", one, value=value)
            for name, value in self.scores.items()
            for one in copies.get(name, (name,))
        ]
        if self.order:
            order = tuple(_spread(layer, copies) for layer in self.order)
            entries.append(Word(kind="order", order=order))
        else:
            entries += self._ends(siblings, copies)
        placed = {one.id: place for place, one in enumerate(siblings)}
        marked = [
            (one, mark)
            for name, mark in self.marks
            for one in (copies.get(name, (name,)) if mark in _LEAVES_OUT else (name,))
        ]
        marks = sorted(marked, key=lambda m: (placed.get(m[0], 0), MARKS.index(m[1])))
        entries += [_word(mark, name) for name, mark in marks]
        entries += [_word("note", name, text=text) for name, text in self.notes.items()]
        entries += [
            _field_word(one, field_name, value)
            for (name, field_name), value in self.fields.items()
            for one in copies.get(name, (name,))
        ]
        return tuple(entries)

    def _ends(
        self, siblings: Sequence[TrajectorySummary], copies: Mapping[str, tuple[str, ...]]
    ) -> list[Word]:
        """Return the statements about the best and the worst trajectories."""
        best = _spread(self.best, copies)
        worst = _spread((self.worst,), copies) if self.worst else ()
        others = [
            one.id for one in siblings if one.id not in (*best, *worst) and one.reward is not None
        ]
        orders: list[tuple[tuple[str, ...], ...]] = []
        entries: list[Word] = []
        if len(best) == 1:
            entries.append(_word("best", best[0]))
        elif best:
            orders += [(best, (one,)) for one in others]
        if len(worst) > 1:
            orders += [((one,), worst) for one in others]
        if len(best) > 1 and len(worst) > 1:
            orders.append((best, worst))
        elif not orders and (len(best) > 1 or len(worst) > 1):
            orders.append(tuple(layer for layer in (best, worst) if len(layer) > 1))
        entries += [Word(kind="order", order=order) for order in orders]
        if len(worst) == 1:
            entries.append(_word("worst", worst[0]))
        return entries


def _spread(layer: Sequence[str], copies: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(one for name in layer for one in copies.get(name, (name,)))


def _word(kind: WordKind, name: str, value: float | None = None, text: str = "") -> Word:
    return Word(kind=kind, trajectory_id=name, value=value, text=text)


def _field_word(name: str, field_name: str, value: FieldValue) -> Word:
    if isinstance(value, float):
        return Word(kind="field", trajectory_id=name, name=field_name, value=value)
    return Word(kind="field", trajectory_id=name, name=field_name, text=value)


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
    """Return whether a trajectory can be ranked: its rollout completed, though the judge or a
    reward may have failed."""
    problem = one.unlabelled.problem if one.unlabelled else one.problem
    return problem is None or problem.code.partition(".")[0] in ("judge", "reward", "label")
