"""Widget of a stored label: content, author, time, effect, rubric; struck through when undone."""

import time

from PySide6.QtWidgets import QWidget

from engine.protocol.records.labels import Label
from studio.pages.trajectories.labels.wording import gist
from studio.theme.theme import theme
from studio.widgets.layouts import vbox
from studio.widgets.text.text import Text
from studio.widgets.transcript.items import plain

TEXT_MOST = 2000
_EFFECTS = {"reward": "changes rewards", "again": "trained again", "none": "agreement only"}


def label_entry(label: Label, numbers: dict[str, int]) -> QWidget:
    """Build the widget of a label. `numbers`: trajectory id → number in the group (from 1)."""
    entry = QWidget()
    column = vbox(parent=entry, spacing=2)
    undone = not label.holds()
    content = Text(gist(label, numbers), "label", 600, "faint" if undone else "human", wrap=True)
    font = theme().font("label", 600)
    font.setStrikeOut(undone)
    content.setFont(font)
    column.addWidget(content)
    for word in label.words:
        if word.kind in ("note", "field") and word.text:
            note = plain(word.text[:TEXT_MOST])
            column.addWidget(Text(f"“{note}”", "label", 400, "text", wrap=True))
    if label.why:
        column.addWidget(Text(plain(label.why[:TEXT_MOST]), "label", 400, "text", wrap=True))
    column.addWidget(Text(provenance(label), "caption", tone="muted", wrap=True))
    entry.setAccessibleName(f"Label: {gist(label, numbers)}, {provenance(label)}")
    return entry


def provenance(label: Label) -> str:
    """Describe a label's author, time, effect, rubric and whether it was undone, in one line."""
    when = time.strftime("%d %b %Y, %H:%M", time.localtime(label.at)).lstrip("0")
    facts = [
        plain(label.who[:60]) or "somebody",
        when if label.at else "",
        _EFFECTS[label.effect],
        "example for the judge" if label.teaches else "",
        "graded blind" if label.blind else "",
        f"rubric {label.rubric[:6]}" if label.rubric else "",
        "repeated" if label.redo_of else "",
        "" if label.holds() else "undone",
    ]
    return " · ".join(fact for fact in facts if fact)
