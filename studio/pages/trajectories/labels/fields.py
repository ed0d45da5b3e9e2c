"""Entry of custom label fields (pure functions): what is asked, and what was typed."""

from engine.protocol.config.labels import FieldValue, LabelField

NONE = (
    "This run has no custom label fields. Define them under [labels.fields] in project.toml; the "
    "next run gets them."
)


def question(name: str, field: LabelField, number: int) -> str:
    """Question for a field of the trajectory with this number in the group."""
    return f"{field.question or name} · {number}"


def hint(field: LabelField) -> str:
    """Describe what may be typed for a field."""
    if field.kind == "choice":
        return "  ".join(f"{place} {words}" for place, words in enumerate(field.choices, 1))
    if field.kind == "number":
        return f"A number from {field.low:g} to {field.high:g}"
    return "Text; Enter saves, Esc cancels"


def parsed(field: LabelField, typed: str) -> FieldValue:
    """Convert typed text to a value, which may be invalid: a choice by its number, its name or the
    only one that begins so; a number with a point or a comma."""
    text = typed.strip()
    if field.kind == "number":
        try:
            return float(text.replace(",", "."))
        except ValueError:
            return text
    if field.kind == "choice":
        if text in field.choices:
            return text
        if text.isascii() and text.isdigit() and 1 <= int(text) <= len(field.choices):
            return field.choices[int(text) - 1]
        begins = [one for one in field.choices if one.casefold().startswith(text.casefold())]
        return begins[0] if text and len(begins) == 1 else text
    return text


def shown(value: FieldValue | None) -> str:
    """Value as text for the entry line, a chip or a sentence; empty without one."""
    return f"{value:g}" if isinstance(value, float) else value or ""
