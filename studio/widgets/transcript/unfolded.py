"""Rows of a transcript whose long text or reasoning is unfolded."""

from collections.abc import Sequence

from studio.widgets.transcript.layout import CHUNK_CHARS, MORE_LINES

FARTHEST_LINES, FARTHEST_CHARS = 4_000, 300_000
"""Limit within which a passage of a long message is laid out; beyond it, only its row is shown."""


class Unfolded:
    """Unfolded lines and reasoning by row. Everything is folded at first."""

    def __init__(self) -> None:
        self._lines: dict[int, int] = {}
        self._reasoning: set[int] = set()

    def clear(self) -> None:
        self._lines.clear()
        self._reasoning.clear()

    def lines(self, row: int) -> int:
        """Number of unfolded lines of a long text."""
        return self._lines.get(row, 0)

    def shows_reasoning(self, row: int) -> bool:
        return row in self._reasoning

    def more(self, row: int) -> None:
        """Unfold more lines of a long text."""
        self._lines[row] = self.lines(row) + MORE_LINES

    def show_reasoning(self, row: int) -> None:
        self._reasoning.add(row)

    def toggle_reasoning(self, rows: Sequence[int]) -> None:
        """Show the reasoning of these rows; if all of them show it, fold it."""
        if self._reasoning.issuperset(rows):
            self._reasoning.difference_update(rows)
        else:
            self._reasoning.update(rows)

    def reach(self, row: int, lines: int, chars: int) -> None:
        """Unfold at least this much of a long text, unless it is too far away."""
        if lines <= FARTHEST_LINES and chars <= FARTHEST_CHARS:
            chunks = max(-(-lines // MORE_LINES), -(-chars // CHUNK_CHARS))
            self._lines[row] = max(self.lines(row), MORE_LINES * chunks)
