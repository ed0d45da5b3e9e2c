"""The keys of pages, in one table: the page binds its handlers by id, the sheet behind ? lists it.

`shown` is what a person reads; `sequences` are what Qt hears, empty where a widget of the page
listens itself. A row with several sequences hands its handler the place of the one pressed.
"""

from dataclasses import dataclass

Keys = tuple[str, ...]
_DIGITS: Keys = tuple("123456789")


@dataclass(frozen=True)
class PageKey:
    """One row: what it does, how it reads, what Qt hears."""

    id: str
    text: str
    icon: str
    shown: str
    sequences: Keys = ()
    each: bool = False
    """Its handler takes the place of the pressed sequence, from 0."""


TRAJECTORIES: tuple[PageKey, ...] = (
    PageKey("label.best", "Best of the group: the attempt of this number", "user-round-check",
            "1 … 9", _DIGITS, each=True),
    PageKey("label.worst", "Worst of the group", "user-round-x", "Shift+1 … 9",
            tuple(f"Shift+{digit}" for digit in _DIGITS), each=True),
    PageKey("label.tie", "As good as the best, and not: the focused attempt", "medal", "Space",
            ("Space",)),
    PageKey("label.up", "Rank the focused attempt higher", "chevron-left", "Ctrl+←",
            ("Ctrl+Left",)),
    PageKey("label.down", "Rank it lower", "chevron-right", "Ctrl+→", ("Ctrl+Right",)),
    PageKey("label.score", "Score it: digits, then Enter", "gauge", "S", ("S",)),
    PageKey("label.veto", "Veto: worth nothing", "ban", "V", ("V",)),
    PageKey("label.exclude", "Exclude: not trained on", "circle-slash", "X", ("X",)),
    PageKey("label.gold", "Gold: an example to warm up with", "star", "G", ("G",)),
    PageKey("label.flag", "Flag it for later", "flag", "F", ("F",)),
    PageKey("label.note", "Write a note on it", "sticky-note", "N", ("N",)),
    PageKey("label.apply", "Apply what was said", "check", "Enter", ("Return", "Enter")),
    PageKey("label.discard", "Take it all back; else close, and back to the columns", "x", "Esc",
            ("Esc",)),
    PageKey("label.undo", "Undo: the last key, then the last label", "undo-2", "U",
            ("U", "Ctrl+Z")),
    PageKey("label.redo", "Redo", "rotate-ccw", "Ctrl+Shift+Z", ("Ctrl+Shift+Z",)),
    PageKey("label.effect", "Choose what the label does", "sliders-horizontal", "M", ("M",)),
    PageKey("label.teach", "Teach the judge too, and not", "scale", "L", ("L",)),
    PageKey("label.blind", "Grade the next group blind", "eye-off", "B", ("B",)),
    PageKey("view.search", "Search", "search", "/", ("/",)),
    PageKey("view.reader", "Reader, and back to the columns", "book-open", "R", ("R",)),
    PageKey("view.table", "Table, and back to the columns", "table", "T", ("T",)),
    PageKey("view.compare", "Compare with the best, or with the attempt focused before",
            "git-compare-arrows", "C", ("C",)),
    PageKey("view.scenarios", "Scenarios and their curves, and back to the columns",
            "trending-up", "P", ("P",)),
    PageKey("view.evidence", "Evidence: score, reason, labels, exact prompt and reply", "scale",
            "E", ("E",)),
    PageKey("view.divergence", "Next place where it parts from the others", "split", "D", ("D",)),
    PageKey("view.before", "Sibling before", "arrow-left", "←", ("Left",)),
    PageKey("view.after", "Sibling after", "arrow-right", "→", ("Right",)),
    PageKey("view.group_before", "Group before", "arrow-up", "↑, Alt+↑", ("Up", "Alt+Up")),
    PageKey("view.group_after", "Group after", "arrow-down", "↓, Alt+↓", ("Down", "Alt+Down")),
    PageKey("view.turn", "Turn next, before", "list-checks", "J K"),
    PageKey("view.tint", "Tint tokens", "sparkles", "Alt+1 … 4",
            tuple(f"Alt+{place}" for place in range(1, 5)), each=True),
)  # fmt: skip
"""Of the Trajectories page."""


def key_of(key_id: str) -> PageKey:
    """A row by its id."""
    return next(row for row in TRAJECTORIES if row.id == key_id)


DRAFT: tuple[PageKey, ...] = (
    PageKey("draft.add", "Add a scenario", "plus", "A", ("A", "Ins")),
    PageKey("draft.edit", "Edit it: Tab, or Ctrl+Enter, ends that", "pencil", "Enter"),
    PageKey("draft.keep", "Keep it, or leave it out", "check", "Space"),
    PageKey("draft.split", "Switch: practise with it, or test with it", "split", "S", ("S",)),
    PageKey(
        "draft.difficulty",
        "Its difficulty; 0 says none",
        "gauge",
        "0 … 5",
        tuple("012345"),
        each=True,
    ),
    PageKey("draft.delete", "Delete it", "trash-2", "Del", ("Del",)),
)
