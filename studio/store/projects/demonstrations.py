"""Text of the Demonstrations tab. Free of I/O."""

from collections.abc import Sequence

from engine.protocol.records.demonstrations import BadLine, DemonstrationFile, Demonstrations, Tally
from studio.text import formatting

ROLES = {"train": "training", "gold": "gold", "validation": "validation"}
EMPTY = (
    "No demonstrations yet. Run a teacher model on the scenarios, keep good trajectories of a run, "
    'or put chat messages into demonstrations.jsonl: {"messages": [{"role": "user", …}, …]}.'
)


def bad_lines(demonstrations: Demonstrations) -> list[BadLine]:
    """Return the invalid lines of all files, as far as the engine lists them."""
    return [line for file in demonstrations.files for line in file.bad]


def bad_words(files: Sequence[DemonstrationFile], skips: bool) -> str:
    """Describe the effect of invalid lines; empty without any. `skips`: training skips them instead
    of refusing to start."""
    count = sum(file.bad_count for file in files)
    if not count:
        return ""
    lines = formatting.plural(count, "invalid line")
    if skips:
        return f"{lines}: skipped in training, because Skip bad lines is on"
    return f"{lines}: fix them or turn on Skip bad lines to train"


def facts_of(demonstrations: Demonstrations) -> list[tuple[str, str]]:
    """Return totals over all files and the number of updates of one run, as (name, value) rows."""
    return [
        ("Training", tally_words(demonstrations.train)),
        ("Held out", tally_words(demonstrations.held_out)),
        (
            "Longest",
            f"{max(demonstrations.train.longest, demonstrations.held_out.longest):,} tokens",
        ),
        ("One run", formatting.plural(demonstrations.updates, "update")),
    ]


def tally_words(tally: Tally) -> str:
    """Describe the number of demonstrations and their trained tokens; "none" without any."""
    count = formatting.plural(tally.examples, "demonstration")
    return f"{count}, {tally.trained:,} tokens" if tally.examples else "none"


def forms_words(file: DemonstrationFile) -> str:
    """Describe the line formats of a file: "24 messages, 3 text"."""
    if file.problem:
        return file.problem.message
    return ", ".join(f"{count} {form}" for form, count in file.forms.items()) or "nothing"


def is_empty(demonstrations: Demonstrations) -> bool:
    """Return whether no demonstration file has any line."""
    return not any(file.lines for file in demonstrations.files)


def ready_words(demonstrations: Demonstrations) -> str:
    """Return why no run can start; empty if one can."""
    return (
        f"{demonstrations.problem.message} {demonstrations.problem.hint}".strip()
        if demonstrations.problem
        else ""
    )
