"""Side-by-side comparison of the focused trajectory with a reference."""

from PySide6.QtWidgets import QHBoxLayout, QWidget

from engine.protocol.records.runs import Trajectory
from studio.pages.trajectories.groups.alignment import differences, rows_of
from studio.pages.trajectories.groups.column_header import ColumnHead, HeadFacts
from studio.pages.trajectories.groups.columns import ColumnsView
from studio.text import formatting
from studio.widgets.layouts import add, vbox
from studio.widgets.transcript.side_by_side import SideBySide


class CompareView(QWidget):
    """Aligned transcripts of a reference and another trajectory, each below its column header."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: tuple[str, str] = ("", "")
        self._difference_words = ""
        self._heads = (ColumnHead(), ColumnHead())
        self.rows = SideBySide()
        heads = QHBoxLayout()
        bar = self.rows.verticalScrollBar().sizeHint().width()
        heads.setContentsMargins(6, 0, 6 + bar, 0)
        heads.setSpacing(16)
        add(heads, *((head, 1) for head in self._heads))
        vbox(heads, (self.rows, 1), parent=self, spacing=6)

    def clear(self) -> None:
        """Clear the view on a change of run, because trajectory ids repeat between runs."""
        self._shown = ("", "")
        self.rows.set_rows([])

    def show_focused(self, columns: ColumnsView, base: str, before: str) -> str:
        """Compare the focused column with the trajectory `base` (id); return the id of the base
        used.

        An invalid or empty `base` is replaced by `base_of`; `before` is the previously focused id.
        """
        focused = columns.record()
        if focused is None:
            return base
        if base in ("", focused.id) or columns.facts_of(base) is None:
            found = base_of(columns.order(), focused, before)
            base = found.id if found else ""
        base_facts, facts = columns.facts_of(base), columns.facts_of(focused.id)
        if base_facts and facts:
            self.show_pair(base_facts, facts)
        return base

    def show_pair(self, base: HeadFacts, other: HeadFacts) -> None:
        """Show `other` next to the reference `base`; the same pair again keeps its position."""
        pair = (base.record.id, other.record.id)
        if pair != self._shown:
            self._shown = pair
            rows = rows_of(base.record, other.record)
            self.rows.set_rows(rows)
            self._difference_words = formatting.plural(len(differences(rows)), "difference")
        number = base.record.index + 1
        self._heads[0].show_facts(base.titled("Reference of the comparison"))
        self._heads[1].show_facts(
            other.titled(f"{self._difference_words} from {number} · D: next divergence")
        )
        self._heads[1].set_focused(True)


def base_of(
    siblings: list[Trajectory], focused: Trajectory, before: str | None
) -> Trajectory | None:
    """Return the trajectory to compare `focused` with: the best other one or, if that is worse than
    `focused`, the one with id `before` (if in the group). None without others."""
    others = [one for one in siblings if one.id != focused.id]
    if not others:
        return None
    best = max(others, key=_reward)
    if _reward(best) >= _reward(focused):
        return best
    return next((one for one in others if one.id == before), best)


def _reward(record: Trajectory) -> float:
    return record.reward if record.reward is not None else float("-inf")
