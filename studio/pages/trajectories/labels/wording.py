"""Texts and chips of labels (pure functions)."""

from collections.abc import Iterable, Sequence

from engine.protocol.records.labels import Label, LabelPreview, Outcome, Word
from engine.protocol.records.runs import TrajectorySummary
from studio.pages.trajectories.labels.draft import Draft
from studio.pages.trajectories.labels.fields import shown
from studio.text import formatting
from studio.widgets.tables.label_chips import LabelChip
from studio.widgets.transcript.items import plain

CHIP_CHARS = 40
"""Maximum number of characters of a custom field with its value."""
CHANGED = 0.005
"""Smallest change of an advantage that is counted, and visible with two decimals."""

EFFECTS = (
    (
        "reward",
        "Override · this step only",
        "Changes rewards; also the update if its batch is still open",
    ),
    ("again", "Train again", "Also adds the corrected group to the next batch"),
    ("none", "Agreement only", "Counts for judge agreement; does not change rewards"),
)
_LOOKS = {
    "best": ("best", "user-round-check", "human"),
    "worst": ("worst", "user-round-x", "human"),
    "tie": ("tied for best", "medal", "human"),
    "veto": ("veto", "ban", "bad"),
    "exclude": ("excluded", "circle-slash", "human"),
    "gold": ("gold", "star", "human"),
    "flag": ("flag", "flag", "human"),
    "note": ("note", "sticky-note", "human"),
}
_DONE = {
    "best": "labelled best",
    "worst": "labelled worst",
    "veto": "vetoed",
    "exclude": "excluded",
    "gold": "marked gold",
    "flag": "flagged",
    "note": "noted",
}


def chips_of(record: TrajectorySummary, labels: Iterable[Label], draft: Draft) -> list[LabelChip]:
    """Return a trajectory's label chips: `labels`, oldest first, then the uncommitted `draft`."""
    held = [kind for label in labels if label.holds() for kind in kinds_in(label, record.id)]
    kinds = list(dict.fromkeys(held))
    scores = [kind for kind in kinds if kind not in _LOOKS and kind[0] not in "#="]
    kinds = [kind for kind in kinds if kind not in scores[:-1]]
    values = {kind.partition(":")[0]: kind for kind in kinds if kind[0] == "="}
    kinds = [kind for kind in kinds if kind[0] != "=" or kind in values.values()]
    pending = [_value(kind, draft, record.id) for kind in draft.kinds_of(record.id)]
    chips = [_chip(kind, False) for kind in kinds if kind not in pending]
    return chips + [_chip(kind, True) for kind in pending]


def _value(kind: str, draft: Draft, name: str) -> str:
    return formatting.number(draft.scores[name]) if kind == "score" else kind


def _chip(kind: str, pending: bool) -> LabelChip:
    if kind.startswith("#"):
        words, icon, tone = f"your {formatting.ordinal(int(kind[1:]))}", "medal", "human"
    elif kind.startswith("="):
        words, icon, tone = plain(kind[1:])[:CHIP_CHARS], "tag", "human"
    else:
        words, icon, tone = _LOOKS.get(kind, (f"you: {kind}", "gauge", "human"))
    return LabelChip(words, icon, tone, pending)


def kinds_in(label: Label, name: str) -> list[str]:
    """Return what a label says about trajectory `name` (id): best, tie, #2 (rank), veto, 0.85 …"""
    orders = [word.order for word in label.words if word.kind == "order"]
    kinds = []
    if ties := _ties(orders):
        best, worst = ties
        kinds += ["tie"] if name in best else ["worst"] if name in worst else []
    elif orders:
        kinds += [f"#{i + 1}" for i, layer in enumerate(orders[-1]) if name in layer]
    for word in label.words:
        if word.trajectory_id == name:
            kinds.append(_kind(word))
    return kinds


def _kind(word: Word) -> str:
    if word.kind == "field":
        return f"={field_text(word)}"
    return formatting.number(word.value) if word.kind == "score" else word.kind


def field_text(word: Word) -> str:
    """Return name and value of a custom field: "tone: kind"."""
    return f"{word.name}: {shown(word.value) if word.value is not None else word.text}"


def _ties(
    orders: Sequence[tuple[tuple[str, ...], ...]],
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the ids tied for best and those tied for worst, if the orders of a label say only
    that: two layers each, with the same first or last layer of several ids."""
    best = {order[0] for order in orders if len(order[0]) > 1}
    worst = {order[1] for order in orders if len(order) == 2 and len(order[1]) > 1}
    alike = all(len(order) <= 2 and (order[0] in best or order[-1] in worst) for order in orders)
    if not (best or worst) or not alike or len(best) > 1 or len(worst) > 1:
        return None
    return next(iter(best), ()), next(iter(worst), ())


def excluded(chips: Iterable[LabelChip]) -> bool:
    """Return whether one of the chips says "excluded"; such a trajectory is drawn faintly."""
    return any(chip.words == _LOOKS["exclude"][0] for chip in chips)


def changed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes whose advantage changes visibly: by at least 0.005, or from or to
    None."""
    return [
        one
        for one in outcomes
        if (one.advantage is None) != (one.new_advantage is None)
        or abs((one.new_advantage or 0) - (one.advantage or 0)) >= CHANGED
    ]


def sentence(label: Label, preview: LabelPreview, closed: int) -> str:
    """Describe the predicted effect of a label: how many advantages change, and which step trains
    on it. `closed`: number of the last completed step."""
    moved, total = len(changed(preview.outcomes)), len(preview.outcomes)
    words = [
        f"Advantages change for {moved} of {total} trajectories."
        if moved
        else "No advantage changes."
    ]
    if label.effect == "none":
        words = ["Agreement only: rewards stay unchanged."]
    elif preview.enters == "this step":
        words.append(f"Applies to step {label.step}.")
    elif preview.enters == "the next step":
        words.append(f"The group is trained again in step {max(closed, label.step) + 1}.")
    elif label.split == "validation":
        words.append("Validation groups are never trained on.")
    else:
        words.append(
            f"Step {label.step} is complete, so no update uses the label. To use it, choose "
            "“Train again”."
        )
    if preview.mapped:
        words.append(f"The other judge scores are rescaled to match your {preview.mapped} scores.")
    return " ".join(words)


def done(label: Label, numbers: dict[str, int], moved: int, total: int) -> str:
    """Describe a committed label (see `gist`), then how many (`moved`) of `total` advantages
    changed."""
    tail = (
        f"Advantages changed for {moved} of {total} trajectories."
        if moved
        else "No advantage changed."
    )
    return f"{gist(label, numbers)}. {tail}"


def gist(label: Label, numbers: dict[str, int]) -> str:
    """Summarize a label: "6 labelled best, 8 vetoed". `numbers`: trajectory id → number in the
    group (from 1)."""
    orders = [word.order for word in label.words if word.kind == "order"]
    parts = []
    if ties := _ties(orders):
        places = zip(ties, ("best", "worst"), strict=True)
        parts += [f"{_named(tied, numbers)} tied for {end}" for tied, end in places if tied]
    elif orders:
        layers = [_named(layer, numbers) for layer in orders[-1]]
        parts.append(f"ranked {', '.join(layers)}")
    parts += [_word_text(word, numbers) for word in label.words if word.kind != "order"]
    whole = ", ".join(parts)
    return whole[:1].upper() + whole[1:]


def _named(names: Iterable[str], numbers: dict[str, int]) -> str:
    known = [str(numbers[name]) if name in numbers else name for name in names]
    return " and ".join(filter(None, (", ".join(known[:-1]), *known[-1:])))


def _word_text(word: Word, numbers: dict[str, int]) -> str:
    who = _named([word.trajectory_id], numbers) if word.trajectory_id else "the group"
    if word.kind == "score":
        return f"{who} scored {formatting.number(word.value)}"
    if word.kind == "field":
        return f"{who} {plain(field_text(word))[:CHIP_CHARS]}"
    return f"{who} {_DONE[word.kind]}"
