"""Table of the keyboard shortcuts of pages.

A page binds its handlers by id; the shortcut sheet (?) lists the table. `shown` is the text for
the user and `sequences` the Qt key sequences, empty where a widget handles the key itself."""

from dataclasses import dataclass

Keys = tuple[str, ...]
_DIGITS: Keys = tuple("123456789")


@dataclass(frozen=True)
class PageKey:
    """Keyboard shortcut of a page."""

    id: str
    text: str
    icon: str
    shown: str
    sequences: Keys = ()
    each: bool = False
    """Whether the handler is called with the index (from 0) of the pressed sequence."""


TRAJECTORIES: tuple[PageKey, ...] = (
    PageKey("label.best", "Label trajectory N as best of the group", "user-round-check",
            "1 … 9", _DIGITS, each=True),
    PageKey("label.worst", "Label trajectory N as worst of the group", "user-round-x",
            "Shift+1 … 9", tuple(f"Shift+{digit}" for digit in _DIGITS), each=True),
    PageKey("label.tie", "Toggle a tie with the best trajectory", "medal", "Space",
            ("Space",)),
    PageKey("label.up", "Move up in the ranking", "chevron-left", "Ctrl+←",
            ("Ctrl+Left",)),
    PageKey("label.down", "Move down in the ranking", "chevron-right", "Ctrl+→", ("Ctrl+Right",)),
    PageKey("label.score", "Score: type digits, then Enter", "gauge", "S", ("S",)),
    PageKey("label.veto", "Veto: set the reward to 0", "ban", "V", ("V",)),
    PageKey("label.exclude", "Exclude from training", "circle-slash", "X", ("X",)),
    PageKey("label.gold", "Gold: use as a demonstration for warm-up", "star", "G", ("G",)),
    PageKey("label.flag", "Flag for later", "flag", "F", ("F",)),
    PageKey("label.note", "Write a note", "sticky-note", "N", ("N",)),
    PageKey("label.fields", "Fill in the custom label fields", "tag", "A", ("A",)),
    PageKey("label.apply", "Apply the label", "check", "Enter", ("Return", "Enter")),
    PageKey("label.discard", "Discard the unsaved label; if there is none, return to the columns",
            "x", "Esc", ("Esc",)),
    PageKey("label.undo", "Undo the last pending change; if there is none, the last applied label",
            "undo-2", "U", ("U", "Ctrl+Z")),
    PageKey("label.redo", "Redo", "rotate-ccw", "Ctrl+Shift+Z", ("Ctrl+Shift+Z",)),
    PageKey("label.effect", "Choose the effect of the label", "sliders-horizontal", "M", ("M",)),
    PageKey("label.teach", "Add or remove the label as an example for the judge", "scale", "L",
            ("L",)),
    PageKey("label.blind", "Grade the next group blind", "eye-off", "B", ("B",)),
    PageKey("label.queue", "Open the review queue; in the queue, go to the next group",
            "list-checks", "Q", ("Q",)),
    PageKey("view.search", "Filter trajectories", "search", "/", ("/",)),
    PageKey("view.reader", "Toggle the reader", "book-open", "R", ("R",)),
    PageKey("view.table", "Toggle the table", "table", "T", ("T",)),
    PageKey("view.compare", "Compare with the best trajectory, or with the previously focused one",
            "git-compare-arrows", "C", ("C",)),
    PageKey("view.scenarios", "Show or hide the reward curves by scenario",
            "trending-up", "P", ("P",)),
    PageKey("view.evidence", "Show evidence: score, reason, labels, exact prompt, reply", "scale",
            "E", ("E",)),
    PageKey("view.chat", "Open the prompt of the turn in the side-by-side chat",
            "message-square-text", "O", ("O",)),
    PageKey("view.divergence", "Go to the next divergence from the group", "split", "D", ("D",)),
    PageKey("view.reasoning", "Show or fold the reasoning of the focused turn, or of all turns",
            "message-square-text", "I", ("I",)),
    PageKey("view.before", "Previous trajectory", "arrow-left", "←", ("Left",)),
    PageKey("view.after", "Next trajectory", "arrow-right", "→", ("Right",)),
    PageKey("view.group_before", "Previous group", "arrow-up", "↑, Alt+↑", ("Up", "Alt+Up")),
    PageKey("view.group_after", "Next group", "arrow-down", "↓, Alt+↓", ("Down", "Alt+Down")),
    PageKey("view.turn", "Next or previous turn", "list-checks", "J K"),
    PageKey("view.tint", "Colour tokens", "sparkles", "Alt+1 … 4",
            tuple(f"Alt+{place}" for place in range(1, 5)), each=True),
)  # fmt: skip
"""Shortcuts of the Trajectories page."""


def key_of(key_id: str) -> PageKey:
    """Return the shortcut of the Trajectories page with the id `key_id`, such as "label.best",
    which must exist."""
    return next(row for row in TRAJECTORIES if row.id == key_id)


DRAFT: tuple[PageKey, ...] = (
    PageKey("draft.add", "Add a scenario", "plus", "A", ("A", "Ins")),
    PageKey("draft.edit", "Edit the scenario; Tab or Ctrl+Enter finishes", "pencil", "Enter"),
    PageKey("draft.keep", "Include or exclude the scenario", "check", "Space"),
    PageKey("draft.split", "Switch between training and validation", "split", "S", ("S",)),
    PageKey(
        "draft.difficulty",
        "Set the difficulty; 0 clears it",
        "gauge",
        "0 … 5",
        tuple("012345"),
        each=True,
    ),
    PageKey("draft.delete", "Delete the scenario", "trash-2", "Del", ("Del",)),
)
