"""Layout of the cells of the step strip, with merging of neighbours. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_CELL_PX = 5


@dataclass(frozen=True)
class StepCell:
    """Step: state (done running planned skipped stopped) and mean reward (None: none)."""

    step: int
    state: str
    reward: float | None = None
    words: str = ""


@dataclass(frozen=True)
class Slot:
    """Drawn cell: first and last index of its steps (inclusive), and its position in pixels."""

    first: int
    last: int
    x: float
    width: float


def lay_out(count: int, width: float) -> list[Slot]:
    """Distribute `count` cells over the width; neighbours merge if narrower than 5 px."""
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
    """Position in `slots` of the cell that contains the step at `index`; -1 if there is none."""
    return next((n for n, slot in enumerate(slots) if slot.first <= index <= slot.last), -1)


def merged_cell(cells: Sequence[StepCell]) -> StepCell:
    """Merge the cells of several steps into one: the stopped or running one if any, else the mean
    reward of the completed ones."""
    for state in ("stopped", "running"):
        if any(cell.state == state for cell in cells):
            first = next(cell for cell in cells if cell.state == state)
            return first
    rewards = [cell.reward for cell in cells if cell.state == "done" and cell.reward is not None]
    if rewards:
        return StepCell(cells[0].step, "done", sum(rewards) / len(rewards))
    skipped = any(cell.state == "skipped" for cell in cells)
    return StepCell(cells[0].step, "skipped" if skipped else cells[0].state)
