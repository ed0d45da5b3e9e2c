"""What the Demonstrations tab says, out of what the engine has read. Pure."""

from collections.abc import Sequence

from engine.protocol.records.demonstrations import BadLine, DemonstrationFile, Demonstrations, Tally
from studio.text import formatting

ROLES = {"train": "learned", "gold": "gold", "validation": "measured"}
EMPTY = (
    "No demonstrations yet. Let a teacher do the scenarios, keep the good attempts of a run, or "
    'put chat messages into demonstrations.jsonl: {"messages": [{"role": "user", …}, …]}.'
)


def bad_lines(found: Demonstrations) -> list[BadLine]:
    """Of all files, as far as they are listed."""
    return [line for file in found.files for line in file.bad]


def bad_words(files: Sequence[DemonstrationFile], skips: bool) -> str:
    """What becomes of them; empty where there are none."""
    count = sum(file.bad_count for file in files)
    if not count:
        return ""
    lines = formatting.plural(count, "bad line")
    if skips:
        return f"{lines}: left out of training, because Skip bad lines is on"
    return f"{lines}: nothing is trained until they are mended, or Skip bad lines is on"


def facts_of(found: Demonstrations) -> list[tuple[str, str]]:
    """Sums over all files, and what a run of them is."""
    return [
        ("Learned", tally_words(found.train)),
        ("Held out", tally_words(found.held_out)),
        ("Longest", f"{max(found.train.longest, found.held_out.longest):,} tokens"),
        ("One run", formatting.plural(found.updates, "update")),
    ]


def tally_words(tally: Tally) -> str:
    count = formatting.plural(tally.examples, "demonstration")
    return f"{count}, {tally.trained:,} tokens" if tally.examples else "none"


def forms_words(file: DemonstrationFile) -> str:
    """24 messages, 3 text."""
    if file.problem:
        return file.problem.message
    return ", ".join(f"{count} {form}" for form, count in file.forms.items()) or "nothing"


def is_empty(found: Demonstrations) -> bool:
    """Whether there is nothing to show but what to do."""
    return not any(file.lines for file in found.files)


def ready_words(found: Demonstrations) -> str:
    """Why it cannot be trained; empty where it can."""
    return f"{found.problem.message} {found.problem.hint}".strip() if found.problem else ""
