"""Text, tables and progress on a terminal. All text passes `visible`: names and messages come from
servers, agents and models, and may contain terminal control sequences."""

import json
import math
import re
import shutil
import sys
from collections.abc import Sequence

from pydantic import BaseModel

from engine.protocol.problems import Problem
from engine.protocol.records.runs import Interval

BLOCKS = "▁▂▃▄▅▆▇█"


OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that control a terminal or the text direction: C0 and C1 controls except tab and line
feed, bidirectional marks and overrides, line separators, and lone surrogates."""


def visible(text: str, lines: bool = True) -> str:
    """Text with Python escapes instead of control characters; without `lines`, also instead of tabs
    and line feeds."""
    text = OBEYED.sub(_escaped, text)
    return text if lines else text.replace("\n", "\\n").replace("\t", "\\t")


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def say(text: str = "") -> None:
    write(text + "\n")


def write(text: str) -> None:
    sys.stdout.write(visible(text))
    sys.stdout.flush()


def warn(text: str) -> None:
    sys.stderr.write(visible(text) + "\n")


def say_json(record: BaseModel) -> None:
    _write_json(record.model_dump_json())


def _write_json(text: str) -> None:
    sys.stdout.write(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()


def complain(problem: Problem, as_json: bool = False) -> None:
    """Write a problem to stderr, with `as_json` also to stdout as JSON."""
    if as_json:
        _write_json(json.dumps({"problem": problem.model_dump()}))
    warn(str(problem))


class Progress:
    """Progress line that is rewritten in place; silent where stdout is not a terminal."""

    def __init__(self) -> None:
        self._shown = False
        self._live = sys.stdout.isatty()

    def show(self, text: str) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(f"\r\x1b[2K{visible(text, lines=False)[:width]}")
            sys.stdout.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stdout.write("\r\x1b[2K")
            self._shown = False


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table with aligned columns; line feeds in a cell are escaped."""
    lines = [[visible(cell, lines=False) for cell in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def sparkline(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    return "".join(
        " " if value is None else BLOCKS[min(7, int((value - low) / span * 8))] for value in values
    )


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def validation_words(reward: Interval | None, win_rate: Interval | None) -> str:
    """Result of a validation for a table: its win rate if there is one, else its mean reward; a
    dash without either."""
    if win_rate:
        return f"wins {percent(win_rate.mean)}"
    return figure(reward.mean if reward else None)


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")
