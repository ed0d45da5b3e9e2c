"""Where the cells of the step strip lie, and which neighbours share one. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_CELL_PX = 5


@dataclass(frozen=True)
class StepCell:
    """One step: its state (done running planned skipped stopped) and mean reward."""

    step: int
    state: str
    reward: float | None = None
    words: str = ""


@dataclass(frozen=True)
class Slot:
    """A drawn cell: the steps it stands for (by index, both ends in) and its place in pixels."""

    first: int
    last: int
    x: float
    width: float


def lay_out(count: int, width: float) -> list[Slot]:
    """Cells over the width; neighbours merge when cells would be narrower than 5 px."""
    if count <= 0 or width <= 0:
        return []
    gap = 2 if width / count >= LEAST_CELL_PX + 2 else 1
    merged = max(1, math.ceil(count * (LEAST_CELL_PX + gap) / (width + gap)))
    cells = math.ceil(count / merged)
    pitch = (width + gap) / cells
    slots = []
    for index in range(cells):
        left, right = round(index * pitch), round((index + 1) * pitch) - gap
        last = min(count, (index + 1) * merged) - 1
        slots.append(Slot(index * merged, last, left, max(1, right - left)))
    return slots


def slot_of(slots: Sequence[Slot], index: int) -> int:
    """The slot that stands for the step at an index; -1 when there is none."""
    return next((n for n, slot in enumerate(slots) if slot.first <= index <= slot.last), -1)


def merged_cell(cells: Sequence[StepCell]) -> StepCell:
    """One cell for several: the mean reward, and the state that needs the eye most."""
    for state in ("stopped", "running"):
        if any(cell.state == state for cell in cells):
            found = next(cell for cell in cells if cell.state == state)
            return found
    rewards = [cell.reward for cell in cells if cell.state == "done" and cell.reward is not None]
    if rewards:
        return StepCell(cells[0].step, "done", sum(rewards) / len(rewards))
    skipped = any(cell.state == "skipped" for cell in cells)
    return StepCell(cells[0].step, "skipped" if skipped else cells[0].state)
