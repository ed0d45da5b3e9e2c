"""Words, tables and progress on a terminal."""

import json
import math
import shutil
import sys
from collections.abc import Sequence

from pydantic import BaseModel

from engine.protocol.problems import Problem

BLOCKS = "▁▂▃▄▅▆▇█"


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_json(record: BaseModel) -> None:
    sys.stdout.write(record.model_dump_json() + "\n")
    sys.stdout.flush()


def complain(problem: Problem, as_json: bool = False) -> None:
    """A problem, on stderr (as JSON on stdout where a program reads it)."""
    if as_json:
        sys.stdout.write(json.dumps({"problem": problem.model_dump()}) + "\n")
    sys.stderr.write(f"{problem}\n")


class Progress:
    """One line that is rewritten; silent where stdout is no terminal."""

    def __init__(self) -> None:
        self._shown = False
        self._live = sys.stdout.isatty()

    def show(self, text: str) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(f"\r\x1b[2K{text[:width]}")
            sys.stdout.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stdout.write("\r\x1b[2K")
            self._shown = False


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, *rows]
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


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")
