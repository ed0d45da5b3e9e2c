"""Runs chosen for a comparison, in order, each with its colour."""

from collections.abc import Iterable

from engine.protocol.records.run_table import MOST_COMPARED

TOKENS = tuple(f"plot-{number}" for number in range(1, MOST_COMPARED + 1))


class ChosenRuns:
    """Ids of the chosen runs. The first is the reference. A run keeps its colour while it is
    chosen, in table, legend and charts."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._tokens)

    @property
    def full(self) -> bool:
        return len(self._tokens) == MOST_COMPARED

    def token(self, run_id: str) -> str | None:
        """Return the colour token of a run chosen for comparison; None if it is not chosen."""
        return self._tokens.get(run_id)

    def toggle(self, run_id: str) -> bool:
        """Add a run to those chosen for comparison, or remove it. Returns False if 8 others are
        chosen."""
        if run_id in self._tokens:
            del self._tokens[run_id]
            return True
        if self.full:
            return False
        free = next(token for token in TOKENS if token not in self._tokens.values())
        self._tokens[run_id] = free
        return True

    def choose(self, run_ids: Iterable[str]) -> None:
        """Choose these runs for comparison, and no others; only the first 8 of them."""
        wanted = list(dict.fromkeys(run_ids))[:MOST_COMPARED]
        self._tokens = {one: token for one, token in self._tokens.items() if one in wanted}
        for run_id in wanted:
            if run_id not in self._tokens:
                self.toggle(run_id)
        self._tokens = {run_id: self._tokens[run_id] for run_id in wanted}
