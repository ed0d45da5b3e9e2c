"""Cells of a grid: [row, column], from 0."""


def inside(cell, rows, columns):
    """Whether a cell is on a grid of so many rows and columns."""
    row, column = cell
    return 0 <= row < rows and 0 <= column < columns


def distance(one, other):
    """Steps between two cells, up, down, left and right only."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def move(cell, way, count=1):
    """The cell `count` steps (1 by default) further: "up" is one row less, "left" one column less."""
    row, column = cell
    if way == "up":
        return [row - count, column]
    if way == "down":
        return [row + count, column]
    if way == "left":
        return [row, column - count]
    return [row, column + count]
